"""Downloads and checks weights from the Hugging Face Hub and authors' servers."""

import functools
import logging
import os
import re
import time
from pathlib import Path

from kerasvit.checkpoints import CheckpointError
from kerasvit.version import __version__

from .access import check_access, endpoint_of
from .errors import (
    client_errors,
    first_line,
    http_error,
    is_passing,
    meaning_of,
    of_the_disk,
    status,
)
from .hashes import wrong_content
from .http import PAUSES, fetch_address

log = logging.getLogger("kerasvit")

TENSORS, CONFIG = "model.safetensors", "config.json"


class DownloadError(CheckpointError):
    """Weights could not be downloaded; the message says why and what to do."""


def fetch(entry) -> Path:
    """Returns the file of a catalogue entry, from the cache or its source.

    A folder that `KERASVIT_WEIGHTS_DIR` names is looked into first, for
    MODEL/TAG/FILE, as in ViTB16/sam/model.safetensors with its config.json beside it.
    Where no hash is pinned, FILE.sha256 may hold it, as sha256sum writes it.

    Returns:
        A folder of the Hub's cache, or a file.

    Raises:
        DownloadError: They cannot be had, or are not what they should be.
    """
    folder = os.environ.get("KERASVIT_WEIGHTS_DIR")
    if folder:
        path = Path(folder).expanduser() / entry.model / entry.tag / entry.filename
        if path.exists():
            sha256 = entry.sha256 or noted(path)
            if wrong := wrong_content(path, entry.size, sha256):
                raise DownloadError(f"{path} is damaged: {wrong}. Copy it again.")
            return path
        log.warning("There is no %s; trying %s.", path, entry.source)
    if entry.on_hub:
        return fetch_repository(entry.source, entry.revision, pin=entry)
    try:
        return fetch_address(entry.source, entry.size, entry.sha256)
    except OSError as error:
        meaning = of_the_disk(error)
        message = (
            f"{entry.source} {meaning}" if meaning else f"{error}{_by_hand(entry)}"
        )
        raise DownloadError(message) from error


def noted(path):
    """Returns the SHA-256 in the note beside a copy, or None."""
    note = path.with_name(path.name + ".sha256")
    if not note.exists():
        _say_unchecked(path, note.name)
        return None
    text = note.read_text(errors="replace")
    match = re.match(r"\s*([0-9a-fA-F]{64})\b", text)
    if not match:
        raise DownloadError(
            f"{note} must begin with 64 hex digits, as sha256sum writes it. Received: "
            f"{text!r:.100}."
        )
    return match[1].lower()


@functools.cache  # once is enough
def _say_unchecked(path, note):
    log.warning("%s is not checked: no hash is pinned, nor in %s.", path, note)


def fetch_repository(repository, revision=None, *, pin=None, **access) -> Path:
    """Downloads the model files of a Hugging Face Hub repository.

    Args:
        repository: "user/name".
        revision: Branch, tag or commit; None: the newest.
        pin: `Entry` with size and sha256 of the tensors, or None: what the Hub itself
            says of the file is checked.
        access: `token`, `cache_dir`, `endpoint` and `local_files_only` of
            `huggingface_hub.hf_hub_download`.

    Returns:
        The folder of the cache that holds them, of one commit.

    Raises:
        DownloadError: They cannot be had, or are not what they should be.
    """
    check_access(revision=revision, **access)
    pinned = (pin.size, pin.sha256) if pin else (None, None)
    get = HubFiles(repository, revision, access)
    tensors = get(TENSORS, *pinned)
    get.revision = tensors.parent.name  # so that all files are of one commit
    for name in (CONFIG, "preprocessor_config.json"):
        if name == CONFIG or b'"model_type"' in (tensors.parent / CONFIG).read_bytes():
            get(name, optional=name != CONFIG)
    return tensors.parent


def parse_address(address) -> tuple[str, str | None]:
    """Returns (repository, revision) of "hf://user/name[@revision]".

    Raises:
        ValueError: It is no such address.
    """
    match = re.fullmatch(
        r"hf://(?:models/)?([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?", address
    )
    if not match or re.search(r"\.(safetensors|json|bin)$", match[2] or ""):
        raise ValueError(
            'An address must be "hf://user/repository" or "hf://user/repository@'
            f'revision", without a path in it. Received: {address!r}.'
        )
    return match[1], match[2]


class HubFiles:
    """Downloads files of one repository, with retries, checks and clear errors.

    The client itself does not check what it has in its cache, nor a download of the
    right length.
    """

    def __init__(self, repository, revision, access):
        self.repository, self.revision, self.access = repository, revision, access
        self.endpoint = endpoint_of(access.get("endpoint"))

    def __call__(self, name, size=None, sha256=None, *, optional=False):
        """Path of a file in the cache; None if there is none and it is optional."""
        from huggingface_hub import errors, is_offline_mode

        offline = self.access.get("local_files_only") or is_offline_mode()
        if optional and self._known_absent(name):
            return None
        try:
            return self._checked(self._patiently(name), size, sha256)
        except errors.EntryNotFoundError as error:
            # A Hub that was not asked does not say that the file is missing.
            asked = not isinstance(error, errors.LocalEntryNotFoundError)
            if optional and (asked or offline):
                return None
            if asked and name == TENSORS:
                self._refuse_parts()
            raise DownloadError(meaning_of(error, name, self)) from error
        except client_errors() as error:
            raise DownloadError(meaning_of(error, name, self)) from error

    def _checked(self, path, size, sha256):
        """The path of a file that is what it should be, after a second download."""
        wrong = wrong_content(path, size, sha256 or self._promised(path))
        if not wrong:
            return path
        log.warning("%s is damaged: %s. It is downloaded again.", path, wrong)
        try:
            path = self._anew(path)
        except (ValueError, *client_errors()) as error:
            cause = error.__cause__ or error  # of a forced one it says no more
            raise DownloadError(
                f"{path} is damaged: {wrong}. It could not be downloaded again: "
                f"{type(cause).__name__}: {first_line(cause)}"
            ) from error
        if wrong := wrong_content(path, size, sha256 or self._promised(path)):
            raise DownloadError(
                f"{path.name} of {self.repository} was downloaded twice and is not "
                f"what it should be: {wrong}. A proxy changes it, or it was replaced: "
                f"{path}."
            )
        return path

    def _known_absent(self, name):
        """Whether the cache says that the commit has no such file."""
        from huggingface_hub import try_to_load_from_cache

        place = {"cache_dir": self.access.get("cache_dir"), "revision": self.revision}
        found = try_to_load_from_cache(self.repository, name, **place)
        # Besides a path and None for "not known" it answers one thing: "absent".
        return found is not None and not isinstance(found, str)

    def _anew(self, path):
        """Downloads a damaged file once more; it stays until the new one is here."""
        aside = path.with_name(f"{path.name}.damaged")
        if not path.is_symlink():
            path.replace(aside)  # else the client leaves it, and its new one aside
        try:
            return self._patiently(path.name, force_download=True)
        finally:
            if path.exists():
                aside.unlink(missing_ok=True)
            elif aside.exists():
                aside.replace(path)

    def _promised(self, path):
        """The hash that the Hub has for a file of its cache, or None."""
        if path.is_symlink():
            # One link only: that of a link may be a hash of another kind.
            name = Path(os.readlink(path)).name
        else:  # as on Windows; what is small is not worth a request
            name = self._etag(path) if path.name == TENSORS else ""
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name):
            return name
        log.debug("Nothing says what %s should hold: it is not checked.", path)
        return None

    def _etag(self, path):
        from huggingface_hub import get_hf_file_metadata, hf_hub_url, is_offline_mode

        if self.access.get("local_files_only") or is_offline_mode():
            return ""
        place = {"endpoint": self.access.get("endpoint")}
        commit = path.parent.name
        try:
            url = hf_hub_url(self.repository, path.name, revision=commit, **place)
            return self._ask(get_hf_file_metadata, url, **place).etag or ""
        except client_errors() as error:  # what is in the cache is usable without
            log.debug("%s: %s", path, first_line(error))
            return ""

    def _refuse_parts(self):
        """Raises where the weights are there, but not in one file."""
        if self(TENSORS + ".index.json", optional=True):
            raise DownloadError(
                f"{self.repository} holds its weights in parts, which are not read. "
                "Save them as one model.safetensors: in transformers "
                'model.save_pretrained(folder, max_shard_size="100GB").'
            )

    def _patiently(self, name, **options):
        for pause in (*PAUSES, None):
            try:
                return self._get(name, **options)
            except client_errors() as error:
                if pause is None or not is_passing(error):
                    raise
            time.sleep(pause)

    def _get(self, name, **options):
        from huggingface_hub import hf_hub_download

        about = {
            "revision": self.revision,
            "library_name": "kerasvit",
            "library_version": __version__,
            **{key: self.access[key] for key in self.access if key != "token"},
        }
        found = self._ask(hf_hub_download, self.repository, name, **about, **options)
        return Path(found)

    def _ask(self, function, *names, **options):
        """What the client answers; from the first refusal on without the token.

        Public files need none, and that of this machine may be out of date.
        """
        try:
            return _call(function, *names, token=self.access.get("token"), **options)
        except (ValueError, OSError) as error:
            sent = status(error) == 401 and http_error(error).response.request.headers
            if not sent or "authorization" not in sent:
                raise
        self.access["token"] = False
        answer = _call(function, *names, token=False, **options)
        # Without an answer, it is open whether the token or the name is wrong.
        log.warning(
            "The Hugging Face token is not valid; trying without. Log in again: "
            "hf auth login."
        )
        return answer


def _call(function, *names, **options):
    try:
        return function(*names, **options)
    except RuntimeError as error:  # so Xet, the Hub's storage, reports some of its own
        raise OSError(str(error)) from error


def _by_hand(entry):
    return f" Or download {entry.source} elsewhere, and pass the path of the file."

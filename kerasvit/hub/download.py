"""Files of weights from the Hugging Face Hub and from the authors' servers, checked."""

import functools
import logging
import os
import re
import time
from pathlib import Path

from kerasvit.checkpoints import CheckpointError
from kerasvit.version import __version__

from .access import check_access
from .explanations import first_line, is_busy, meaning_of, of_the_disk, status
from .hashes import wrong_content
from .web import PAUSES, fetch_address

log = logging.getLogger("kerasvit")

TENSORS, CONFIG = "model.safetensors", "config.json"


class DownloadError(CheckpointError):
    """Weights could not be had; the message says whose fault it is and what to do."""


def fetch(entry) -> Path:
    """The weights of an entry of the manifest, from here or from its source.

    A folder that `KERASVIT_WEIGHTS_DIR` names is looked into first, for
    MODEL/TAG/FILE, as in ViTB16/sam/model.safetensors with its config.json beside it.
    Where no hash is pinned, FILE.sha256 may hold it, as sha256sum writes it.

    Returns:
        A folder of the Hub's cache, or a file.

    Raises:
        DownloadError: They cannot be had, or are not what they should be.
    """
    place = os.environ.get("KERASVIT_WEIGHTS_DIR")
    if place:
        path = Path(place).expanduser() / entry.model / entry.tag / entry.filename
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
        said = f"{entry.source} {meaning}" if meaning else f"{error}{_by_hand(entry)}"
        raise DownloadError(said) from error


def noted(path):
    """SHA-256 of a copy, as a note beside it says; None where there is none."""
    note = path.with_name(path.name + ".sha256")
    if not note.exists():
        _say_unchecked(path, note.name)
        return None
    said = note.read_text(errors="replace")
    found = re.match(r"\s*([0-9a-fA-F]{64})\b", said)
    if not found:
        raise DownloadError(
            f"{note} must begin with 64 hex digits, as sha256sum writes it. Received: "
            f"{said!r:.100}."
        )
    return found[1].lower()


@functools.cache  # once is enough
def _say_unchecked(path, note):
    log.warning("%s is not checked: no hash is pinned, nor in %s.", path, note)


def fetch_repository(repository, revision=None, *, pin=None, **access) -> Path:
    """The files of a model that a repository of the Hugging Face Hub holds.

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
    """(repository, revision) of "hf://user/name[@revision]".

    Raises:
        ValueError: It is no such address.
    """
    found = re.fullmatch(
        r"hf://(?:models/)?([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?", address
    )
    if not found or re.search(r"\.(safetensors|json|bin)$", found[2] or ""):
        raise ValueError(
            'An address must be "hf://user/repository" or "hf://user/repository@'
            f'revision", without a path in it. Received: {address!r}.'
        )
    return found[1], found[2]


class HubFiles:
    """Gets single files of one repository: patiently, checked, and with plain errors.

    The client itself does not check what it has in its cache, nor a download of the
    right length.
    """

    def __init__(self, repository, revision, access):
        self.repository, self.revision, self.access = repository, revision, access

    def __call__(self, name, size=None, sha256=None, *, optional=False):
        """Path of a file in the cache; None if there is none and it is optional."""
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        wrong = None
        if optional and self._known_absent(name):
            return None
        try:
            path = self._patiently(name)
            wrong = wrong_content(path, size, sha256 or self._promised(path))
            if wrong:
                log.warning("%s is damaged: %s. It is downloaded again.", path, wrong)
                path = self._anew(path)
                wrong = wrong_content(path, size, sha256 or self._promised(path))
        except Exception as error:
            local = isinstance(error, LocalEntryNotFoundError)
            missing = isinstance(error, EntryNotFoundError) and not local
            if optional and (missing or local and self._offline()):
                return None
            if wrong:
                cause = error.__cause__ or error  # of a forced one it says no more
                raise DownloadError(
                    f"{path} is damaged: {wrong}. It could not be downloaded again: "
                    f"{type(cause).__name__}: {first_line(cause)}"
                ) from error
            if missing and name == TENSORS:
                self._refuse_parts()
            raise DownloadError(meaning_of(error, name, self)) from error
        if wrong:
            raise DownloadError(
                f"{name} of {self.repository} was downloaded twice and is not what it "
                f"should be: {wrong}. A proxy changes it, or it was replaced: {path}."
            )
        return path

    def _known_absent(self, name):
        """Whether the cache says that the commit has no such file."""
        from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache

        place = {"cache_dir": self.access.get("cache_dir"), "revision": self.revision}
        found = try_to_load_from_cache(self.repository, name, **place)
        return found is _CACHED_NO_EXIST

    def _offline(self):
        from huggingface_hub import constants

        return self.access.get("local_files_only") or constants.HF_HUB_OFFLINE

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
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        if self._offline():
            return ""
        place = {"endpoint": self.access.get("endpoint")}
        commit = path.parent.name
        try:
            url = hf_hub_url(self.repository, path.name, revision=commit, **place)
            return self._ask(get_hf_file_metadata, url, **place).etag or ""
        except Exception as error:  # whatever: what is in the cache is usable without
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
            began = time.monotonic()
            try:
                return self._get(name, **options)
            except Exception as error:
                if pause is None or not is_passing(error, time.monotonic() - began):
                    raise
                if "Consistency check" in str(error):
                    # Else clients before 2.0 add to what they have for ever.
                    options["force_download"] = True
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
        from huggingface_hub.utils import build_hf_headers

        token = self.access.get("token")
        try:
            return function(*names, token=token, **options)
        except Exception as error:
            if _answer(error) != 401:
                raise
            if "authorization" not in build_hf_headers(token=token):
                raise  # none was sent
        log.warning(
            "The Hugging Face token is not valid; trying without. Log in again: "
            "hf auth login."
        )
        self.access["token"] = False
        return function(*names, token=False, **options)


def is_passing(error, took=0):
    """Whether it may go better in a moment, after so many seconds."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "LocalEntryNotFoundError" in kinds and took > 10:
        return False  # clients from 2.0 on have waited; those before ask once
    if code := _answer(error):
        return is_busy(code)
    # Of httpx or httpx2, by the client's version.
    return "TransportError" in kinds or "Consistency check" in str(error)


def _answer(error):
    """The HTTP status that an error tells of, or its cause, or None."""
    return status(error) or status(error.__cause__)


def _by_hand(entry):
    return f" Or download {entry.source} elsewhere, and pass the path of the file."

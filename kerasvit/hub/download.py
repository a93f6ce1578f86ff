"""Downloads of weights from the Hugging Face Hub and authors' servers, with checks."""

import functools
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kerasvit.checkpoints import (
    ADAPTERS,
    BESIDE_PRESET,
    INDEX,
    INSTEAD_OF_TENSORS,
    PEFT_CONFIG,
    PEFT_PICKLED,
    PEFT_TENSORS,
    PICKLED,
    PICKLED_INDEX,
    PRESET,
    SHARDS,
    TENSORFLOW,
    CheckpointError,
    read_json,
    shard_files,
)
from kerasvit.version import __version__

from .access import check_access, endpoint_of
from .errors import (
    client_errors,
    explain_disk,
    explain_download,
    first_line,
    http_error,
    is_passing,
    retried,
)
from .hashes import wrong_content
from .manifest import Entry
from .servers import fetch_address

log = logging.getLogger("kerasvit")

TENSORS, CONFIG, PAGE = "model.safetensors", "config.json", "README.md"
# Of repositories without the first.
_OTHER_TENSORS = (INDEX, PICKLED, PICKLED_INDEX, TENSORFLOW, PRESET)


class DownloadError(CheckpointError):
    """Error of a failed download; the message states the reason and what to do."""


def fetch(entry: Entry) -> Path:
    """Returns the file of a catalogue entry, from the cache or its source.

    The function first searches the folder in `KERASVIT_WEIGHTS_DIR` for MODEL/TAG/FILE,
    such as ViTB16/sam/model.safetensors with its config.json beside it. If no hash is
    pinned, FILE.sha256 may contain it, in the format of sha256sum.

    Returns:
        Path of a folder in the Hub's cache, or of a file.

    Raises:
        DownloadError: The file is not available, or its size or hash is wrong.
    """
    if folder := os.environ.get("KERASVIT_WEIGHTS_DIR"):
        own = Path(os.path.expanduser(folder))
        path = own / entry.model / entry.tag / entry.filename
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
        if meaning := explain_disk(error):
            raise DownloadError(f"{entry.source} {meaning}") from error
        raise DownloadError(
            f"{error} Or download {entry.source} elsewhere, and pass the path of the "
            "file."
        ) from error


def noted(path: Path) -> str | None:
    """Returns the SHA-256 in the note beside a copy, or None.

    Raises:
        DownloadError: The note contains no SHA-256.
    """
    note = path.with_name(path.name + ".sha256")
    if not note.exists():
        _warn_unchecked(path, note.name)
        return None
    text = note.read_text("utf-8", errors="replace")
    match = re.match(r"\s*([0-9a-fA-F]{64})\b", text)
    if not match:
        raise DownloadError(
            f"{note} must begin with 64 hex digits, as sha256sum writes it. Received: "
            f"{text!r:.100}."
        )
    return match[1].lower()


@functools.cache  # once for each file
def _warn_unchecked(path: Path, note: str) -> None:
    log.warning("%s is not checked: no hash is pinned, nor in %s.", path, note)


def fetch_repository(
    repository: str,
    revision: str | None = None,
    *,
    pin: Entry | None = None,
    **access: Any,
) -> Path:
    """Downloads the model files of a Hugging Face Hub repository.

    Args:
        repository: "user/name".
        revision: Branch, tag or commit; None: the newest.
        pin: `Entry` with size and sha256 of the tensors; None to check the hash that
            the Hub states.
        access: `token`, `cache_dir`, `endpoint` and `local_files_only` of
            `huggingface_hub.hf_hub_download`.

    Returns:
        Path of the cache folder with the files of one commit.

    Raises:
        DownloadError: A file is not available, or its size or hash is wrong.
        CheckpointError: config.json cannot be read.
    """
    check_access(revision=revision, **access)
    files = HubFiles(repository, revision, access)
    pinned = (pin.size, pin.sha256) if pin else (None, None)
    try:
        tensors = files.get(TENSORS, *pinned)
    except DownloadError as error:
        others = () if pin or not files.lacks(error) else _OTHER_TENSORS
        found = next(filter(None, map(files.find, others)), None)
        if found is None:
            raise
        tensors = found
    files.revision = tensors.parent.name  # so that all files come from one commit
    for shard in shard_files(tensors) if tensors.name in SHARDS else ():
        files.get(shard)
    for name in BESIDE_PRESET if tensors.name == PRESET else ():
        files.find(name)
    config = read_json(files.get(CONFIG))
    if "model_type" in config:  # a model of transformers
        files.find("preprocessor_config.json")
        files.find("processor_config.json")
    record = config.get("kerasvit")
    if isinstance(record, dict) and record.get("adapters_sha256"):
        files.get(ADAPTERS)
    if pin is None:  # the catalogue states the licence
        files.find_page()
    return tensors.parent


def fetch_adapters(address: str, access: dict[str, Any]) -> Path:
    """Downloads the adapters in a repository, in kerasvit's form or PEFT's.

    Args:
        address: "hf://user/repository[@revision]".
        access: As for `fetch_repository`.

    Returns:
        Path of the file of kerasvit, or of PEFT's file of settings.

    Raises:
        DownloadError: A file is not available, or its size or hash is wrong.
    """
    files = HubFiles(*parse_address(address), access)
    if own := files.find(ADAPTERS):
        return own
    settings = files.find(PEFT_CONFIG)
    if settings is None:
        return files.get(ADAPTERS)  # raises
    files.revision = settings.parent.name  # so that both files come from one commit
    if files.find(PEFT_TENSORS) is None:
        files.get(PEFT_PICKLED)
    return settings


def parse_address(address: str) -> tuple[str, str | None]:
    """Returns (repository, revision) of "hf://user/name[@revision]".

    Raises:
        ValueError: The address has another format.
    """
    match = re.fullmatch(
        r"hf://(?:models/)?([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?/?", address
    )
    if not match or re.search(r"\.(safetensors|json|bin|h5)$", match[2] or ""):
        raise ValueError(
            'An address must be "hf://user/repository" or "hf://user/repository@'
            f'revision", without a path in it. Received: {address!r}.'
        )
    return match[1], match[2]


class HubFiles:
    """Downloader for files of one repository, with retries, checks and clear errors.

    The client itself checks neither cached files nor the hash of downloads.

    Args:
        repository: "user/name".
        revision: Branch, tag or commit; None: the newest.
        access: Arguments `access` of `fetch_repository`.
    """

    def __init__(self, repository: str, revision: str | None, access: dict[str, Any]):
        from huggingface_hub import HfApi, is_offline_mode

        self.repository, self.revision = repository, revision
        self._cache = access.get("cache_dir")
        self._offline = bool(access.get("local_files_only")) or is_offline_mode()
        endpoint, token = endpoint_of(access.get("endpoint")), access.get("token")
        self._client = HfApi(endpoint, token, "kerasvit", __version__)

    def get(
        self, name: str, size: int | None = None, sha256: str | None = None
    ) -> Path:
        """Returns the path of a file in the cache, downloaded and checked.

        Raises:
            DownloadError: The file is not available, or its size or hash is wrong.
        """
        from huggingface_hub.errors import RemoteEntryNotFoundError

        try:
            return self._checked(self._download(name), size, sha256)
        except client_errors() as error:
            absent = isinstance(error, RemoteEntryNotFoundError) and name == TENSORS
            for other, meaning in INSTEAD_OF_TENSORS.items():
                if absent and self.find(other):
                    raise DownloadError(f"{self.repository} {meaning}") from error
            where = (self.repository, self.revision, self._client.endpoint)
            raise DownloadError(explain_download(error, name, *where)) from error

    def find(self, name: str) -> Path | None:
        """Returns the path from `get`; None if the repository has no such file."""
        from huggingface_hub import try_to_load_from_cache

        where = {"cache_dir": self._cache, "revision": self.revision}
        cached = try_to_load_from_cache(self.repository, name, **where)
        # The result is a path, None if unknown, or an object that means "absent".
        if cached is not None and not isinstance(cached, str):
            return None
        try:
            return self.get(name)
        except DownloadError as error:
            if self.lacks(error):
                return None
            raise

    def find_page(self) -> None:
        """Downloads README.md, the model's card, if it is there.

        Without it the model is complete, so that a failure is a warning.
        """
        try:
            self.find(PAGE)
        except DownloadError as error:
            log.warning("The model is loaded without its card: %s", error)

    def lacks(self, error: DownloadError) -> bool:
        """Returns whether a file is missing: a failed request does not imply it."""
        from huggingface_hub import errors

        local = (errors.LocalEntryNotFoundError,) if self._offline else ()
        return isinstance(error.__cause__, (errors.RemoteEntryNotFoundError, *local))

    def _checked(self, path: Path, size: int | None, sha256: str | None) -> Path:
        """Returns the path of a correct file, after a second download if necessary."""
        wrong = wrong_content(path, size, sha256 or self._promised(path))
        if not wrong:
            return path
        log.warning("%s is damaged: %s. It is downloaded again.", path, wrong)
        aside = path.with_name(f"{path.name}.damaged")
        if not path.is_symlink():
            path.replace(aside)  # otherwise the client keeps the damaged file
        try:
            path = self._download(path.name, force_download=True)
        except client_errors(ValueError) as error:
            cause = error.__cause__ or error  # the cause of a forced download
            raise DownloadError(
                f"{path} is damaged: {wrong}. It could not be downloaded again: "
                f"{type(cause).__name__}: {first_line(cause)}"
            ) from error
        finally:
            if path.exists():
                aside.unlink(missing_ok=True)
            elif aside.exists():  # no new file: restore the damaged one
                aside.replace(path)
        if wrong := wrong_content(path, size, sha256 or self._promised(path)):
            raise DownloadError(
                f"{path.name} of {self.repository} was downloaded twice and is not "
                f"the expected file: {wrong}. A proxy changes it, or it was replaced: "
                f"{path}."
            )
        return path

    def _promised(self, path: Path) -> str | None:
        """Returns the Hub's hash of a cached file, or None."""
        name = ""
        if path.is_symlink():
            # Follow one link only: further links may be named by another kind of hash.
            name = Path(os.readlink(path)).name
        elif path.suffix in (".safetensors", ".bin", ".h5") and not self._offline:
            name = self._etag(path)  # no links, as on Windows
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name):
            return name
        log.debug("%s is not checked: its hash is not known.", path)
        return None

    def _etag(self, path: Path) -> str:
        """Returns the Hub's hash of a file, or "" if the request fails."""
        from huggingface_hub import hf_hub_url

        where = {"revision": path.parent.name, "endpoint": self._client.endpoint}
        url = hf_hub_url(self.repository, path.name, **where)
        try:
            return self._ask(self._client.get_hf_file_metadata, url=url).etag or ""
        except client_errors() as error:  # cached files are usable without it
            log.debug("%s: %s", path, first_line(error))
            return ""

    def _download(self, name: str, **options: Any) -> Path:
        options |= {"revision": self.revision, "cache_dir": self._cache}
        options |= {"repo_id": self.repository, "filename": name}
        options |= {"local_files_only": self._offline}
        download = self._client.hf_hub_download
        return Path(retried(lambda: self._ask(download, **options), is_passing))

    def _ask(self, request: Callable[..., Any], **options: Any) -> Any:
        """Returns the client's answer; drops the token after the Hub rejects it.

        Public files need no token, and the token of this machine may have expired.
        """
        try:
            return request(**options)
        except RuntimeError as error:  # raised by Xet, the Hub's storage
            raise OSError(str(error)) from error
        except (ValueError, OSError) as error:
            refusal = http_error(error)
            if (
                refusal is None
                or refusal.response.status_code != 401
                or "authorization" not in refusal.response.request.headers
            ):
                raise
        self._client.token = False
        answer = self._ask(request, **options)
        # This answer proves that the token was wrong and not the repository's name.
        log.warning(
            "The Hugging Face token is not valid; the download continues without it. "
            "Log in again: hf auth login."
        )
        return answer

"""`python -m release`: build a release into dist/VERSION. `python -m release images`: build and push both images."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

import click
from packaging.version import InvalidVersion

from release import images, single_file
from release.building import Release, Wanted, build
from release.version import version_of

ROOT: Final = Path(__file__).parents[1]
COLUMNS: Final = 120


@click.group(invoke_without_command=True)
@click.option("--dist", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "dist", show_default="dist")
@click.option("--source", default="", help="URL of the repository, for labels of images and the krew manifest.")
@click.option("--key", default="", help="Key of gpg that signs the checksums.")
@click.option("--engine", default="", help="podman or buildah; default: the one that works.")
@click.option("--base", default="", help="Base image in place of the one that the Containerfiles name.")
@click.option("--image-option", "image_options", multiple=True, help="Further argument of the engine's build.")
@click.option("--image-platform", "image_platforms", multiple=True, default=images.PLATFORMS)
@click.option("--platform", "platforms", multiple=True, type=click.Choice([*single_file.TAGS, "none"]))
@click.option("--python", "pythons", multiple=True, default=single_file.PYTHONS, help="Of the single files.")
@click.option("--complete", is_flag=True, help="Fail if anything could not be built.")
@click.pass_context
def main(
    context: click.Context, /, *, dist: Path, platforms: tuple[str, ...], complete: bool, key: str, **options: object
) -> None:
    """Build everything that a release publishes."""
    if context.invoked_subcommand:
        return
    if _git("status", "--porcelain"):
        raise click.ClickException("a release is built from a commit: commit everything first")
    chosen = tuple(name for name in platforms or single_file.TAGS if name != "none")
    try:
        release = build(ROOT, dist, Wanted(platforms=chosen, signing_key=key, **options))  # type: ignore[arg-type]
    except (FileExistsError, ValueError, InvalidVersion) as error:
        raise click.ClickException(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise click.ClickException(f"{error}\n{error.stderr or ''}") from None
    _print(release, dist / release.version.semantic)
    if complete and release.missing:
        raise click.ClickException("the release is not complete")


def _print(release: Release, folder: Path) -> None:
    click.echo(f"{folder}: version {release.version.semantic}, commit {release.revision[:12]}\n")
    width = max(map(len, release.made))
    for name, text in release.made.items():
        click.echo(f"{name:{width}}  {(folder / name).stat().st_size / 1e6:9.3f} MB  {text}")
    for name, reason in release.missing.items():
        click.echo(textwrap.fill(f"NOT MADE: {name}: {reason}", COLUMNS, subsequent_indent="  "))


@main.command("images")
@click.option("--registry", default="", help="Where to push, such as registry.example.org/team.")
@click.option("--tag", default="", help="Default: the version.")
@click.option("--engine", default="")
@click.option("--source", default="")
def push_images(*, registry: str, tag: str, engine: str, source: str) -> None:
    """Build both images for this machine's platform, and push them."""
    if not registry:
        raise click.ClickException("name the registry to push to: make images REGISTRY=registry.example.org/team")
    found = images.find_engine(engine)
    if found is None:
        raise click.ClickException("make images needs podman, buildah or docker, and none of them works here")
    version = version_of(ROOT)
    tag = tag or version.semantic
    what = images.Build(version.python, _git("rev-parse", "HEAD"), source, int(_git("log", "-1", "--format=%ct")))
    try:
        for image in images.IMAGES:
            images.build(found, ROOT, f"{registry}/{image}:{tag}", image, what)
            images.push(found, f"{registry}/{image}:{tag}")
    except images.ImageError as error:
        raise click.ClickException(str(error)) from None
    click.echo("pushed; in your overlay's images:")
    for image in images.IMAGES:
        click.echo(f'  - {{name: {image}, newName: {registry}/{image}, newTag: "{tag}"}}')


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise click.ClickException(f"git {arguments[0]}: {run.stderr.strip()}")
    return run.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

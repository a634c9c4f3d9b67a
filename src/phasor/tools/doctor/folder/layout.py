"""Whether the weights of a folder look trained in the pair layout that the model's code rotates."""

from ...checkpoints.detection import layout_of_weights
from ...checkpoints.qk_tensors import find_qk_tensors
from ..model_folder import ModelFolder
from ..report import Check

WHAT = "pair layout of the weights"


def check_layout(folder: ModelFolder) -> Check:
    """One row: right, or not shown, which is `needed` where the weights look like the other layout.

    A model that was converted halfway runs without an error and fits its config, so only its weights can tell.
    `phasor.checkpoints.detect` looks at how smooth they are; that is a statistic, so nothing is called wrong by it.
    """
    try:
        qk = find_qk_tensors(folder.folder, folder.config.tree, folder.tensors, None)
        found = layout_of_weights(folder.tensors, qk)
    except ValueError as error:
        return _not_shown(f"the weights were not looked at: {error}")
    own, path = qk.pair_word("native"), folder.path
    z = ", ".join(f"{word} {value:.1f}" for word, value in found.z.get("q and k", {}).items())
    if found.odd:
        mixed = f"a conversion looks half done: {', '.join(found.odd)}, unlike the rest"
        return _not_shown(mixed, "take the original weights again and convert q and k together", needed=True)
    if not found.word:
        return _not_shown("these weights look like neither layout, as weights do that were hardly trained")
    if found.word == own:
        return Check(where="weights", what=WHAT, against="spec", verdict="right", reason=f"{own} (smoothness: {z})")
    return _not_shown(
        f"the weights look {found.word} (smoothness: {z}), and the code of {qk.rotary.model_type} rotates {own}: if "
        "so, attention sees distances that it was not trained on, and text gets worse at every length",
        f"phasor doctor {path} --text FILE, with a text of the kind it was trained on, decides; phasor convert {path} "
        f"OUT --from {found.word} --to {own} writes weights that the code reads rightly",
        needed=True,
    )


def _not_shown(reason: str, way_out: str = "", needed: bool = False) -> Check:
    return Check(
        where="weights", what=WHAT, against="spec", verdict="not shown", reason=reason, way_out=way_out, needed=needed
    )

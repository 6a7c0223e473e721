"""Audits of other libraries: what is right holds, and what is broken is refuted."""

import json

import numpy as np
import pytest
import torch

from dpbench.audit.inference import refutes, strongest_attack
from dpbench.audit.peers import peer
from dpbench.audit.peers.contenders import CONTENDERS, GAMES, contender_audit
from dpbench.audit.peers.opacus_peer import Opacus
from dpbench.audit.peers.peer import PeerTask
from dpbench.cli.main import main
from dpbench.comparison.reproduce.command import reproduce
from dpbench.privacy.accountants import pld
from dpbench.runs.config.commands import RunAuditCommand
from dpbench.step.clipping.functions import Abadi
from dpbench.system.errors import UserError

# So few canaries are no data set: attacks are sharper at a large delta. jax_privacy calls optax by
# an old name.
pytestmark = [
    pytest.mark.filterwarnings("ignore:privacy.delta"),
    pytest.mark.filterwarnings("ignore:optax.global_norm:DeprecationWarning"),
]

MODES = ("opacus_hooks", "opacus_functorch", "opacus_ew", "opacus_ghost")


def task_of(
    size: int = 40,
    rate: float = 1.0,
    steps: int = 1,
    noise_multiplier: float = 1.0,
    blanks: int = 0,
) -> PeerTask:
    """Every other canary is in the data."""
    return PeerTask(size, torch.arange(0, size, 2), rate, noise_multiplier, steps, 1, blanks)


def is_refuted(name: str, game: str = "run", **task) -> bool:
    """As `contender_audit` judges, without its lower bounds, which take longer."""
    torch.manual_seed(1)
    played, _ = GAMES[game](CONTENDERS[name], task_of(**task), 1e-3)
    return refutes(strongest_attack(played.attacks, 1), played.ledger, 1e-3, 1)


def needs(name: str) -> None:
    if name == "jax_privacy":
        pytest.importorskip("jax_privacy", reason="jax_privacy is no dependency: install it")


@pytest.mark.parametrize("length", [0.5, 3.0, 1024.0])
@pytest.mark.parametrize("name", [*MODES, "opacus_adaptive", "opacus_shuffled", "jax_privacy"])
def test_a_canary_moves_the_sum_as_far_as_our_clip_lets_it(name, length, monkeypatch):
    needs(name)
    monkeypatch.setattr(peer, "LENGTH", length)
    (heard,) = CONTENDERS[name](task_of(noise_multiplier=1e-6)).steps()
    norms = torch.tensor([length])
    clipped = norms * Abadi(1.0).factors(norms, torch.zeros(1, dtype=torch.long))
    expected = torch.zeros(40, dtype=torch.float64)
    expected[::2] = float(clipped)
    torch.testing.assert_close(heard.noisy, expected, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODES, "jax_privacy"])
def test_the_ledger_and_the_claim_are_those_of_the_library(name):
    needs(name)
    task = task_of(size=1000, rate=0.1, steps=20)
    played, trained = GAMES["run"](CONTENDERS[name], task, 1e-3)
    assert played.ledger.steps == 20
    assert trained.epsilon(1e-3) == pytest.approx(pld(played.ledger, 1e-3), abs=0.02)
    assert trained.library in played.attacked


@pytest.mark.parametrize("name", ["opacus_hooks", "jax_privacy"])
def test_the_nominal_epsilon_and_the_noise_with_and_without_the_canary_are_of_one_step(name):
    """Without a warning of Opacus, whose accountant takes the logarithm of 1 - rate."""
    needs(name)
    played, trained = GAMES["step"](CONTENDERS[name], task_of(size=20), 1e-3)
    assert played.ledger.steps == 1
    assert trained.epsilon(1e-3) == pytest.approx(pld(played.ledger, 1e-3), abs=0.02)
    needs(name)
    played, _ = GAMES["step"](CONTENDERS[name], task_of(size=60), 1e-3)
    scores = played.attacks[0]
    with_canary, without = (scores.values[scores.included == there] for there in (True, False))
    least = np.abs(with_canary[:, None] - 1 - without[None]).min()
    assert least > 1e-6


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["opacus_hooks", "opacus_ghost", "jax_privacy"])
@pytest.mark.parametrize("game", ["run", "step"])
def test_a_correct_library_is_not_refuted(name, game):
    needs(name)
    assert not is_refuted(name, game, size=1500, rate=0.1, steps=40)


@pytest.mark.slow
def test_half_of_the_noise_is_refuted(monkeypatch):
    """The accountant is told of all of it."""
    from opacus.optimizers import DPOptimizer

    add_noise = DPOptimizer.add_noise

    def mutant(self):
        self.noise_multiplier /= 2
        add_noise(self)
        self.noise_multiplier *= 2

    monkeypatch.setattr(DPOptimizer, "add_noise", mutant)
    assert is_refuted("opacus_hooks", size=1500, steps=9)
    assert is_refuted("opacus_hooks", "step", size=1500)


def test_half_of_the_noise_of_jax_privacy_is_refuted(monkeypatch):
    pytest.importorskip("jax_privacy", reason="jax_privacy is no dependency: install it")
    from jax_privacy import noise_addition

    noise = noise_addition._iid_normal_noise

    def mutant(key, tree, stddev, dtype=None):
        return noise(key, tree, stddev / 2, dtype)

    monkeypatch.setattr(noise_addition, "_iid_normal_noise", mutant)
    assert is_refuted("jax_privacy", size=1500, steps=9)


@pytest.mark.slow
def test_ghost_clipping_of_losses_in_a_column_does_not_clip():
    """Factors [B] times losses [B, 1] are [B, B]: each gradient moves by the sum of the factors."""
    (heard,) = CONTENDERS["opacus_ghost_column"](task_of(noise_multiplier=1e-6)).steps()
    assert heard.noisy[::2].tolist() == pytest.approx([20.0] * 20, rel=1e-3)
    assert is_refuted("opacus_ghost_column", "step", size=600)


@pytest.mark.slow
def test_an_adaptive_bound_and_shuffled_batches_accounted_as_poisson_are_refuted():
    assert is_refuted("opacus_adaptive", "step", size=1500, noise_multiplier=4.0)
    assert is_refuted("opacus_shuffled", size=4000, rate=0.1, steps=10, noise_multiplier=0.3)


@pytest.mark.long
def test_the_bits_of_noise_in_float32_are_refuted_and_those_on_a_grid_are_not(monkeypatch):
    from opacus.optimizers import optimizer

    assert is_refuted("opacus_hooks", "bits", size=1500)
    noise = optimizer._generate_noise

    def on_a_grid(**settings):
        return (noise(**settings) * 2**16).round() / 2**16

    monkeypatch.setattr(optimizer, "_generate_noise", on_a_grid)
    assert not is_refuted("opacus_hooks", "bits", size=1500)


def test_an_empty_batch_is_a_step_of_noise():
    task = task_of(size=4, rate=0.1, steps=12)  # two examples, of which a step takes one or none
    peers = CONTENDERS["opacus_hooks"](task)
    sums = torch.stack([heard.noisy for heard in peers.steps()])
    assert len(sums) == 12
    assert (sums.std(0) > 0.3).all()


@pytest.mark.parametrize(
    "name", ["opacus_functorch", "opacus_ew", "opacus_ghost", "opacus_adaptive"]
)
def test_these_modes_of_opacus_fail_on_an_empty_batch(name):
    """docs/privacy/audits.md says so: a failure reveals that the batch was empty."""
    torch.manual_seed(1)
    with pytest.raises(RuntimeError):
        list(CONTENDERS[name](task_of(size=4, rate=0.1, steps=60)).steps())


@pytest.mark.slow
def test_the_command_prints_a_table_and_one_object(capsys, monkeypatch, tmp_path):
    settings = ["canaries=600", "epochs=1", "privacy.delta=1e-3", f"results_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["dpbench", "audit", "contender=opacus_hooks", *settings])
    state = torch.get_rng_state()
    main()
    assert torch.equal(torch.get_rng_state(), state)
    shown, *_, last = capsys.readouterr().out.splitlines()
    said = json.loads(last)
    assert (said["contender"], said["verdict"]) == ("opacus_hooks", "not refuted")
    assert "its PRV" in said["claimed_by"]
    assert shown.startswith("| method ")


@pytest.mark.slow
def test_a_library_that_is_not_installed_is_a_note_of_the_table(tmp_path):
    rows = '["contender=opacus_hooks canaries=400","contender=fastdp"]'
    asked = ["table.methods=[]", f"table.compute.rows={rows}", f"results_dir={tmp_path}"]
    changed = ["epochs=1", "privacy.delta=1e-3", "device=cpu"]  # the last is not for libraries
    page = reproduce("audit", [*asked, *changed])
    assert "- 1 claims attacked, 0 refuted." in page
    assert page.count("(hooks) | run | 400 |") == 1
    assert "Not audited: contender=fastdp" in page


def test_a_table_refuses_what_libraries_do_not_have_before_it_attacks_anything(monkeypatch):
    monkeypatch.setattr(
        "dpbench.benchmarks.exposure.audit_table._in_processes", lambda *_: pytest.fail("attacked")
    )
    with pytest.raises(UserError, match=r"optimizer\.lr=2 is for methods of dpbench"):
        reproduce("audit", ["optimizer.lr=2"])


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "proven"), [(0.5, False), (20.0, True)])
def test_a_claim_below_our_pld_is_held_against_as_a_number(epsilon, proven, monkeypatch):
    """Nine steps of all examples: our PLD is 13.1."""
    monkeypatch.setattr(Opacus, "epsilon", lambda self, delta: epsilon)
    settings = RunAuditCommand(contender="opacus_hooks", canaries=1000)
    result = contender_audit(settings, ["batch_size=1000", "epochs=9", "privacy.delta=1e-3"])
    assert result.nominal.proven == proven
    assert result.verdict == ("not refuted" if proven else "refuted")

"""What nobody should type ends at once: exit code 2, one sentence, nothing printed, no file."""

import shlex
import sys

import pytest

from dpbench.cli import main as cli

LONG, BIG = "a" * 300, "9" * 5000

WORDS = f"""
list {LONG}
list dataset/../..
list hydra
data {LONG}
data ../digits
run device=10{BIG}
run device={BIG[:23]}
run device=[1]
run threads=100000
run threads={BIG[:23]}
run jobs={BIG[:23]}
run jobs=null
run checkpoint_minutes=inf
run checkpoint_minutes=true
run -m seed=0,1 jobs={BIG[:23]}
run -m seed=range(0,0)
run -m seed=range(5,1)
run -m seed=glob(*)
run -m method=glob(zzz*)
run -m seed=range(0,10,1e-9)
run -m seed=range(0,10,0)
run -m seed=range(0,1e400)
run -m seed=range(0,9999) epochs=range(1,9999)
run -m seed=interval(0,1)
run -m +seed=0,1
run -m seed=0,1 results_dir={LONG}
run results_dir={LONG}
run results_dir=''
run results_dir={"b/" * 3000}
run data_dir={LONG}
run ~results_dir
run ~dataset
run ~epochs
run ~seed=0
run hydra=3
run hydra=null
run ~hydra
run hydra.sweeper=x
run hydra.searchpath=[file:///nowhere]
run --infos
run {LONG}
run {LONG}={LONG}
run =3
run a.b.c=3
run optimizer._partial_=false
run +method._partial_=true
run +model._args_=[1]
run +model._convert_=none
run seed={BIG}
run seed=1e400
run epochs={BIG}
run batch_size={BIG[:40]}
run model.widths={"[" * 3000}{"]" * 3000}
run model.widths=[{",".join(["1"] * 1001)}]
run +table=[demo,bam_table1]
run +table=null
run +table=demo +table=bam_table1
run +table=calibration_fig3 table.arm=zzz
run table.seeds=[1]
run dataset=digits@x
run dataset=[digits]
run dataset=[digits,mnist]
run +dataset=mnist
run tracker=[]
run optimizer.lr='$'{{oc.env:HOME}}
run optimizer.lr='$'{{optimizer}}
run seed='$'{{seed}}
run seed='$'{{nothing}}
run method.bound='???'
epsilon epochs=100000000
epsilon epochs={BIG[:18]}
epsilon batch_size=1 epochs=100000
epsilon privacy.noise_multiplier=inf
epsilon privacy.noise_multiplier=1e300
epsilon privacy.noise_multiplier=1e-300
epsilon privacy=eps3 privacy.epsilon=true
epsilon privacy.delta=nan
epsilon method=dpsgd_global method.strict_bound=1e308
epsilon method=dpsgld privacy=follows method.prior_precision=1e308
epsilon users=dirichlet users.concentration=1e308
epsilon users=shards users.each={BIG[:12]}
epsilon users=iid users.number={BIG[:12]}
epsilon model.widths=[0]
epsilon model.widths=''
epsilon model.widths=[{BIG[:18]}]
epsilon diagnostics=bias diagnostics.groups=[0,a]
epsilon diagnostics=bias diagnostics.groups=[99]
epsilon diagnostics=bias diagnostics.quantiles=3
epsilon diagnostics=bias diagnostics.sizes=[true]
epsilon diagnostics=misalignment diagnostics.hutchinson={BIG[:12]}
epsilon diagnostics=misalignment diagnostics.groups=[-1]
epsilon method=fairlens dataset=adult method.clipping_weight=a
epsilon method=fairlens dataset=adult method.noise_weight=nan
epsilon schedule=custom schedule.lr=[1]
epsilon schedule=custom schedule.noise=x
epsilon schedule=bound_switch schedule.lr.values=[a]
epsilon schedule=bound_switch schedule.lr.until=3
epsilon schedule=noise_falls schedule.noise.number={BIG[:12]}
epsilon schedule=noise_falls schedule.noise.of=3
epsilon model=wrn16_4 dataset=cifar10 model.depth=100000000
epsilon model=bert_tiny dataset=snli model.layers=100000000
epsilon model=vit_tiny dataset=cifar10 model.name=zzz
epsilon model=resnet9 dataset=cifar10 model.groups=0
epsilon model=resnet9 dataset=cifar10 model.groups=7
epsilon dataset=celeba model=cnn_tanh dataset.size=1
epsilon dataset=celeba dataset.target=../../x
epsilon dataset=adult dataset.balance_by_sex=../../x
epsilon dataset=digits_unbalanced dataset.label=8.0
epsilon optimizer.lr=nan
epsilon optimizer.lr=false
epsilon optimizer.lr=inf
epsilon optimizer=adam optimizer.eps=true
epsilon optimizer=adam optimizer.betas=[1,2]
epsilon optimizer=adam +optimizer.capturable=true
epsilon +optimizer.differentiable=true
epsilon optimizer._target_=torch.optim.LBFGS ~optimizer.momentum
epsilon optimizer._target_=torch.optim.SparseAdam ~optimizer.momentum
epsilon optimizer._target_=torch.optim.Optimizer ~optimizer.momentum
epsilon method.bound=inf
epsilon method.bound=true
epsilon method=dpsgd_jl method.projections={BIG[:12]}
epsilon method=dpsgd_quantile method.quantile=nan
epsilon method=dp_fedavg users=iid method.local_epochs={BIG[:12]}
epsilon precision=3
epsilon sums=3
epsilon channels_last=3
epsilon ema_decay=x
epsilon ema_decay=true
epsilon head_lr_factor=x
epsilon features=efficientnet_lite0 dataset=cifar10 ++features.checksum=1.5
epsilon features=efficientnet_lite0 dataset=cifar10 features.package={{a:1}}
epsilon validation=1e-300
epsilon tracker=wandb tracker.wandb.project=a/b
epsilon tracker=wandb tracker.wandb.mode=loud
epsilon launcher=slurm launcher.partition='"a b"'
epsilon launcher=slurm launcher.gpus=x
epsilon launcher=slurm launcher.memory_gb=nan
reproduce {LONG}
reproduce demo {LONG}
reproduce demo scale
reproduce demo table.baseline=zzz
reproduce demo table.columns=3
reproduce demo table.columns.accuracy=3
reproduce demo table.columns.accuracy.digits=1.5
reproduce demo table.columns.accuracy.tolerance=nan
reproduce demo table.columns.accuracy.metric=3
reproduce demo table.settings=3
reproduce demo table.settings=[3]
reproduce demo table.settings=[{{when:3}}]
reproduce demo table.settings=[{{set:3}}]
reproduce demo table.settings=[{{choose:{{dataset:3}}}}]
reproduce demo table.settings=null
reproduce demo ~table.settings
reproduce demo table.notes=3
reproduce demo table.notes=[3]
reproduce demo table.seeds=[a]
reproduce demo table.seeds=[-1]
reproduce demo table.methods=[3]
reproduce demo table.groups=3
reproduce demo table.published=../../etc/passwd
reproduce demo table.epsilon=zzz
reproduce demo table.spread=x
reproduce demo table.title=3
reproduce demo table.paper=null
reproduce demo table.reference=zzz
reproduce demo +table.conditions=3
reproduce demo +table.conditions=[3]
reproduce demo +table.conditions=[{{a:3}}]
reproduce demo +table.conditions=[{{a:[3]}}]
reproduce demo +table.conditions=[{{dataset:[zzz]}}]
reproduce demo +table.variants={{dpsgd:3}}
reproduce demo +table.figure=3
reproduce demo +table.figure={{kind:zzz}}
reproduce demo +table.figure={{kind:heat}}
reproduce demo +table.scales={{a:3}} scale=a
reproduce demo +table.scales={{a:{{description:x}}}} scale=a
reproduce demo +table.compute={{}}
reproduce demo +table.compute={{a:3}}
reproduce sign_fig1 table.compute.points=0
reproduce sign_fig1 table.compute.points={BIG[:12]}
reproduce sign_fig1 table.compute.dimensions=3
reproduce sign_fig1 table.compute.epsilon=-1
reproduce sign_fig1 table.compute.delta=2
reproduce sign_fig1 table.compute.table_signals=[a]
reproduce calibration_table1 table.compute.clips=3
reproduce calibration_table1 table.compute.clips={{a:{{clip:abadi}}}}
reproduce calibration_table1 table.compute.lr=inf
reproduce sampling_laws table.compute.steps=[1]
reproduce sampling_laws table.compute.limit=0.5
reproduce bam_lemma3 table.compute.weight=0
reproduce bam_lemma3 table.compute.steps=a
reproduce calibration_theorem3 table.compute.optimizers=3
reproduce calibration_theorem3 table.compute.optimizers.adam.kind=adamw
reproduce calibration_theorem3 table.compute.by_hand={{inputs:3,targets:[1]}}
reproduce calibration_theorem3 table.compute.by_hand={{inputs:[[a]],targets:[1]}}
reproduce calibration_fig2 table.figure.variable=zzz
reproduce calibration_fig3 table.figure.x=zzz
reproduce calibration_fig3 table.figure.panels=3
reproduce calibration_fig4 table.figure.band=x
reproduce calibration_fig4 table.figure.panels=[{{a:1}}]
reproduce bam_fig4 table.figure.panels=[]
reproduce bam_fig3 table.compute.repeats=-1
reproduce bam_fig3 table.compute.case=zzz
search optimizer.lr=interval(0,1e308)
search optimizer.lr=interval(-1e308,1e308)
search optimizer.lr=interval(nan,1)
search optimizer.lr=interval(a,1)
search optimizer.lr=tag(log,interval(1e-320,1))
search batch_size=int(interval(1,{BIG[:31]}))
search optimizer.lr=interval(0,1) N={BIG[:23]}
search optimizer.lr=interval(0,1) N={BIG}
search optimizer.lr=interval(0,1) draw={BIG}
search optimizer.lr=interval(0,1) name={LONG}
search optimizer.lr=range(0,0)
search optimizer.lr=glob(*)
search optimizer.lr=1,2 optimizer.lr=3,4
search optimizer.lr=1,2 seed=range(0,10,1e-9)
search optimizer.lr=1,2 seed={BIG},1
search optimizer.lr=1,2 by=tpe results_dir={LONG}
search hydra=1,2
search +table=demo,bam_table1
report results_dir={LONG}
report results_dir=
report out={LONG}
report results_dir=/dev/null
bench repeats={BIG[:23]}
bench repeats={BIG}
bench suite=
bench out={LONG}
-m
{LONG}
"""


@pytest.mark.sampled(100)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", WORDS.split("\n")[1:-1], ids=lambda line: line[:60])
def test_odd_input_is_refused_in_one_sentence(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(sys, "argv", ["dpbench", *shlex.split(line)])
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("dpbench: ")
    assert err.count("\n") == 1
    assert len(err) < 1000
    assert not any(path.is_file() for path in tmp_path.rglob("*"))

from snakemake.utils import min_version

from pipeline_core.workflow import Plan

min_version("9.25")


configfile: "workflows/config.yaml"


plan = Plan(config)
shell.prefix(plan.shell_prefix)


pathvars:
    results=plan.options.results,


report: "workflows/report/workflow.rst"


container: plan.container


wildcard_constraints:
    dataset=plan.NAME,
    experiment=f"{plan.NAME}/{plan.NAME}",
    variant=plan.NAME,


include: "workflows/rules/data.smk"
include: "workflows/rules/graph.smk"
include: "workflows/rules/partition.smk"
include: "workflows/rules/train.smk"
include: "workflows/rules/evaluate.smk"
include: "workflows/rules/infer.smk"
include: "workflows/rules/figures.smk"
include: "workflows/rules/targets.smk"

from snakemake.utils import min_version

from pipeline_core.workflow import Plan

min_version("9.25")


configfile: "workflows/config.yaml"


plan = Plan(config)
plan.replace_report()
shell.prefix(plan.shell_prefix)


pathvars:
    results=plan.options.results,


report: "workflows/report/workflow.rst"


container: plan.container


wildcard_constraints:
    dataset=plan.NAME,
    experiment=f"{plan.NAME}/{plan.NAME}",
    variant=plan.NAME,


rule all:
    input:
        plan.experiments,
    localrule: True


for name in plan.RULES:

    include: f"workflows/rules/{name}.smk"

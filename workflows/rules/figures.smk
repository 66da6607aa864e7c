rule figures:
    input:
        plan.inputs("figures"),
    output:
        report(
            directory("<results>/{experiment}/figures"),
            patterns=["{figure}.html", "{figure}.png"],
            caption="../report/figure.rst",
            category="{experiment}",
            subcategory=plan.figure_heading,
            labels=plan.figure_labels,
        ),
    log:
        "<results>/{experiment}/figures.log",
    localrule: True
    params:
        project=plan.drawing,
        options=plan.params("figures"),
    shell:
        "pipeline-core figures --experiment {wildcards.experiment:q} {params.project} > {log:q} 2>&1"

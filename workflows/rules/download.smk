rule download:
    output:
        # Kept if it exists already, after a check of its hash.
        update(f"{plan.datasets}/{{file}}"),
    log:
        "<results>/downloads/{file}.log",
    wildcard_constraints:
        file=plan.downloads,
    localrule: True
    params:
        words=plan.download,
        sha256=plan.sha256,
    shell:
        "pipeline-core download {params.words} > {log:q} 2>&1"

rule train:
    input:
        plan.inputs("train"),
    output:
        "<results>/{experiment}/{variant}/model.pt",
        "<results>/{experiment}/{variant}/history.jsonl",
    log:
        "<results>/{experiment}/{variant}/logs/train.log",
    threads: plan.threads("train")
    resources:
        launcher="",
        ranks=plan.ranks("train"),
        device="auto",
    params:
        project=plan.arguments,
        options=plan.params("train"),
    shell:
        "{resources.launcher} pipeline-core train --experiment {wildcards.experiment:q} --variant {wildcards.variant:q}"
        " --ranks {resources.ranks} --device {resources.device:q} {params.project} > {log:q} 2>&1"

dpolicy prove policy.yaml --unit user --when '"zap" in attributes'

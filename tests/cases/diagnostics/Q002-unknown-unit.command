dpolicy prove policy.yaml --unit usr

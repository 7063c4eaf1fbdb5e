dpolicy prove policy.yaml --unit user --any 2 --of project

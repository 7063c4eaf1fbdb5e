dpolicy prove policy.yaml --unit user --rho 1 --mu 1

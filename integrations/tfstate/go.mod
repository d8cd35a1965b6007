module github.com/leased-project/leased/integrations/tfstate

go 1.26.0

replace github.com/leased-project/leased => ../../

require (
	github.com/leased-project/leased v0.0.0
	github.com/stretchr/testify v1.12.1
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

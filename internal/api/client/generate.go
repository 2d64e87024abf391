// A client of the API, generated from its description: what a user's generator makes of
// it, compiled and used in a test. To make it anew after a change:
//
//	POSTLANE_UPDATE=1 go test ./internal/api/client -run TestDescriptionIsCommitted
//	go generate ./internal/api/client

package client

//go:generate go tool -modfile=../../../tools/oapi-codegen.mod oapi-codegen -config config.yaml openapi-3.0.json

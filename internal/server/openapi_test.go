package server_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/httpapi"
	"github.com/leased-project/leased/internal/wire"
)

// openAPI is the part of an OpenAPI description that the test compares with the server.
type openAPI struct {
	Paths map[string]struct {
		Post struct {
			RequestBody struct {
				Content map[string]struct{ Schema schema }
			} `yaml:"requestBody"`
		}
	}
	Components struct {
		Schemas   map[string]schema
		Responses map[string]struct{ Description string }
	}
}

type schema struct {
	Ref        string `yaml:"$ref"`
	Type       string
	Properties map[string]schema
	Required   []string
	Enum       []string
}

// The description that a member serves has the calls, the fields and the errors of the server, no
// more and no fewer. The server itself names the fields of a call.
func TestOpenAPIDescribesTheServer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	response, err := http.Get("http://" + s.Address() + httpapi.OpenAPIPath)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var described openAPI
	require.NoError(t, yaml.Unmarshal(text, &described))

	calls := 0
	for _, file := range []protoreflect.FileDescriptor{pb.File_leased_v1_lease_proto, pb.File_leased_v1_admin_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				path := httpapi.ShortPath(string(m.Name()))
				_, found := described.Paths[path]
				require.Equal(t, !m.IsStreamingClient() || !m.IsStreamingServer(), found, path)
				if found {
					calls++
				}
			}
		}
		for i := range file.Messages().Len() {
			requireSchema(t, described, file.Messages().Get(i))
		}
	}
	require.Len(t, described.Paths, calls)
	require.Equal(t, wire.Codes(), described.Components.Schemas["Error"].Properties["code"].Enum)
	for _, code := range wire.Codes() {
		require.Contains(t, described.Components.Responses["Error"].Description, fmt.Sprintf("- %s: %d\n", code,
			wire.StatusOf(code)))
	}

	for path, item := range described.Paths {
		body, ok := item.Post.RequestBody.Content["application/json"]
		if !ok || path == httpapi.ShortPath("SaveSnapshot") { // a file, and a body that is ignored
			continue
		}
		_, answer := post(t, s.Address(), path, `{"noSuchField": 1}`)
		named := regexp.MustCompile(`the fields are (.*)`).FindStringSubmatch(fmt.Sprint(answer["message"]))
		require.NotNil(t, named, "%s: %v", path, answer)
		var want []string
		for name := range described.Components.Schemas[strings.TrimPrefix(body.Schema.Ref,
			"#/components/schemas/")].Properties {
			want = append(want, name)
		}
		if len(want) == 0 {
			want = []string{"none"}
		}
		require.ElementsMatch(t, want, strings.Split(named[1], ", "), path)
	}
}

// requireSchema checks the description of a message, if it has one: messages of the session stream
// have none.
func requireSchema(t *testing.T, described openAPI, m protoreflect.MessageDescriptor) {
	t.Helper()
	found, ok := described.Components.Schemas[string(m.Name())]
	if !ok {
		return
	}
	require.Len(t, found.Properties, m.Fields().Len(), m.Name())
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		property, ok := found.Properties[f.JSONName()]
		require.True(t, ok, "%s.%s; run api/leased/v1/generate.sh", m.Name(), f.JSONName())
		require.Equal(t, f.IsList(), property.Type == "array", "%s.%s", m.Name(), f.JSONName())
		if always := slices.Contains(found.Required, f.JSONName()); always {
			require.True(t, httpapi.SpelledOut(f), "%s.%s", m.Name(), f.JSONName())
		}
	}
}

package leasedv1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/golden"
)

// TestGoldenAPI checks that nothing of version 1 of the API was removed or changed: each
// line of the golden file describes a method, a field or a value. Additions are allowed; run
// the test with -update to record them.
func TestGoldenAPI(t *testing.T) {
	var lines []string
	for _, file := range []protoreflect.FileDescriptor{pb.File_leased_v1_lease_proto, pb.File_leased_v1_admin_proto} {
		lines = append(lines, describe(file)...)
	}
	slices.Sort(lines)
	if golden.Updating() {
		golden.Text(t, "api.txt", strings.Join(lines, "\n")+"\n")
	}
	frozen := strings.Split(strings.TrimSuffix(string(golden.Read(t, "api.txt")), "\n"), "\n")
	require.Greater(t, len(frozen), 300)
	for _, line := range frozen {
		require.True(t, slices.Contains(lines, line),
			"the API of version 1 is frozen: do not rename, renumber or remove: %s; see docs/adr/0030-frozen-formats.md", line)
	}
	for _, line := range lines {
		require.True(t, slices.Contains(frozen, line), "an addition to the API, %s; run the test with -update", line)
	}
}

// describe returns a line for each method, field and value of a file.
func describe(file protoreflect.FileDescriptor) (lines []string) {
	services := file.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			lines = append(lines, fmt.Sprintf("method /%s/%s %s%s -> %s%s", m.Parent().FullName(), m.Name(),
				streaming(m.IsStreamingClient()), m.Input().FullName(), streaming(m.IsStreamingServer()), m.Output().FullName()))
		}
	}
	lines = append(lines, messages(file.Messages())...)
	return append(lines, enums(file.Enums())...)
}

func streaming(yes bool) string {
	if yes {
		return "stream "
	}
	return ""
}

func messages(list protoreflect.MessageDescriptors) (lines []string) {
	for i := range list.Len() {
		m := list.Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			switch {
			case f.Message() != nil:
				kind = string(f.Message().FullName())
			case f.Enum() != nil:
				kind = string(f.Enum().FullName())
			}
			line := fmt.Sprintf("field %s = %d %s %s json %s", f.FullName(), f.Number(), f.Cardinality(), kind, f.JSONName())
			if one := f.ContainingOneof(); one != nil {
				line += " in " + string(one.Name())
			}
			lines = append(lines, line)
		}
		lines = append(lines, messages(m.Messages())...)
		lines = append(lines, enums(m.Enums())...)
	}
	return lines
}

func enums(list protoreflect.EnumDescriptors) (lines []string) {
	for i := range list.Len() {
		values := list.Get(i).Values()
		for j := range values.Len() {
			lines = append(lines, fmt.Sprintf("value %s = %d", values.Get(j).FullName(), values.Get(j).Number()))
		}
	}
	return lines
}

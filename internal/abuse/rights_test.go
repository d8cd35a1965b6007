//go:build linux

package abuse

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/wire"
	"github.com/leased-project/leased/lease/engine"
)

// publicCalls need no user.
var publicCalls = []string{"ClusterService/Health"}

// commonCalls are for every user that has a right, whichever it is: a client learns
// from them which mode a lock has.
var commonCalls = []string{"PolicyService/ListPolicies", "PolicyService/WatchTopology"}

// calls returns all calls of all services, from the descriptors. A call that is not in
// the lists above must be refused, so that a new one cannot be forgotten.
func calls() []protoreflect.MethodDescriptor {
	var list []protoreflect.MethodDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("leased.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				list = append(list, methods.Get(j))
			}
		}
		return true
	})
	return list
}

// nameOf returns Service/Method.
func nameOf(m protoreflect.MethodDescriptor) string {
	return string(m.Parent().Name()) + "/" + string(m.Name())
}

// victim is what the attacker knows of another user's lease, and a request about it.
type victim struct {
	resource, session string
	token, nonce      float64
}

// fill sets the fields of a request to what belongs to the victim, by their names, so
// that the request of a new call is about the victim as well.
func (v *victim) fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	id, _ := engine.ParseSessionID(v.session)
	texts := map[protoreflect.Name]string{"resource": v.resource, "session_id": v.session, "prefix": "secret/",
		"mode": "efficiency", "id": "n1",
		"address": "127.0.0.1:1", "raft_address": "127.0.0.1:1", "api_address": "127.0.0.1:1", "to": "n1", "namespace": "x",
		"name": "x", "max_ttl": "1m"}
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.ContainingOneof() != nil && !f.ContainingOneof().IsSynthetic(), f.IsMap():
		case f.IsList() && f.Message() != nil:
			v.fill(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList() && f.Name() == "addresses":
			m.Mutable(f).List().Append(protoreflect.ValueOfString("127.0.0.1:1"))
		case f.IsList() && f.Name() == "resources" && fields.ByName("resource") == nil:
			m.Mutable(f).List().Append(protoreflect.ValueOfString(v.resource))
		case f.IsList():
		case f.Message() != nil:
			v.fill(m.Mutable(f).Message())
		case f.Kind() == protoreflect.StringKind && texts[f.Name()] != "" &&
			!(f.Name() == "prefix" && fields.ByName("resource") != nil):
			m.Set(f, protoreflect.ValueOfString(texts[f.Name()]))
		case f.Name() == "token":
			m.Set(f, protoreflect.ValueOfUint64(uint64(v.token)))
		case f.Name() == "nonce":
			m.Set(f, protoreflect.ValueOfUint64(uint64(v.nonce)))
		case f.Name() == "ttl_nanos" && fields.ByName("wait") == nil:
			m.Set(f, protoreflect.ValueOfInt64(1e10))
		case f.Name() == "floor":
			m.Set(f, protoreflect.ValueOfUint64(1<<40))
		case f.Name() == "session" && f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes(id[:]))
		}
	}
}

// requests returns the requests of a call. Those of the session stream are two for
// each kind of operation, one for each mode.
func (v *victim) requests(m protoreflect.MethodDescriptor) []proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		panic(err) // the generated code is linked
	}
	request := kind.New()
	v.fill(request)
	stream, ok := request.Interface().(*pb.SessionRequest)
	if !ok {
		return variants(request.Interface())
	}
	var list []proto.Message
	one := stream.Operations[0].ProtoReflect().Descriptor().Oneofs().ByName("call")
	for i := range one.Fields().Len() {
		for _, efficiency := range []bool{false, true} {
			op := proto.Clone(stream.Operations[0]).(*pb.Operation)
			v.fill(op.ProtoReflect().Mutable(one.Fields().Get(i)).Message())
			switch call := op.Call.(type) {
			case *pb.Operation_Renew:
				if !efficiency {
					call.Renew.Leases = nil
				}
			case *pb.Operation_Release:
				if !efficiency {
					call.Release.Lease = nil
				}
			case *pb.Operation_Acquire:
				if efficiency {
					call.Acquire.TtlNanos = 1e10
				}
			}
			list = append(list, &pb.SessionRequest{Operations: []*pb.Operation{op}})
		}
	}
	return list
}

// variants returns a request, and if a lease can be named by its session or by its
// resource, a request with each alone.
func variants(request proto.Message) []proto.Message {
	fields := request.ProtoReflect().Descriptor().Fields()
	session, resource, token := fields.ByName("session_id"), fields.ByName("resource"), fields.ByName("token")
	if session == nil || resource == nil {
		return []proto.Message{request}
	}
	bySession, byResource := proto.Clone(request), proto.Clone(request)
	byResource.ProtoReflect().Clear(session)
	if token != nil {
		bySession.ProtoReflect().Clear(resource)
		bySession.ProtoReflect().Clear(token)
	}
	return []proto.Message{bySession, byResource}
}

// grpc makes a call with gRPC and returns its error. An answer of the session stream
// counts as its error; any other message is an answer.
func (v *victim) grpc(t *testing.T, conn *grpc.ClientConn, m protoreflect.MethodDescriptor,
	request proto.Message) (answer proto.Message, err error) {
	t.Helper()
	out, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	require.NoError(t, err)
	response := out.New().Interface()
	path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return response, wire.FromStatus(conn.Invoke(testContext(t), path, request, response))
	}
	desc := &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}
	stream, err := conn.NewStream(testContext(t), desc, path)
	require.NoError(t, err)
	_ = stream.SendMsg(request) // fails if the service has refused the call already
	if !m.IsStreamingServer() || !m.IsStreamingClient() {
		_ = stream.CloseSend()
	}
	err = wire.FromStatus(stream.RecvMsg(response))
	if session, ok := response.(*pb.SessionResponse); ok && err == nil && len(session.Answers) == 1 {
		refused := session.Answers[0]
		err, refused.Error, refused.Id = wire.ToError(refused.Error), nil, 0
		response = refused
	}
	return response, err
}

// paths returns the HTTP paths of a call.
func paths(m protoreflect.MethodDescriptor) []string {
	var short strings.Builder
	for i, c := range string(m.Name()) {
		if unicode.IsUpper(c) && i > 0 {
			short.WriteByte('-')
		}
		short.WriteRune(unicode.ToLower(c))
	}
	return []string{"/" + string(m.Parent().FullName()) + "/" + string(m.Name()), "/v1/" + short.String()}
}

// state returns what no attacker may change, as the administrator sees it.
func (s *server) state(v *victim) string {
	s.t.Helper()
	status := s.call("/v1/status", "{}")
	holders := s.call("/v1/inspect", fmt.Sprintf(`{"resource":%q}`,
		v.resource))["lock"].(map[string]any)["holders"].([]any)
	for _, changing := range []string{"ttlLeft", "since", "age", "renewed"} {
		delete(holders[0].(map[string]any), changing)
	}
	text, err := json.Marshal([]any{holders, s.call("/v1/list-policies", "{}"), s.call("/v1/get-fleet", "{}"),
		status["sessions"], status["locks"], status["holders"], status["waiters"], status["lastToken"], status["members"],
		status["state"]})
	require.NoError(s.t, err)
	return string(text)
}

// startVictim starts a server where the user victim holds a lock.
func startVictim(t *testing.T) (*server, *victim, map[string]string) {
	t.Helper()
	s, secrets := startWithUsers(t, map[string][]string{
		"victim": {"--allow=acquire:secret/*"}, "nobody": {}, "neighbour": {"--allow=acquire:jobs/*", "--allow=read:jobs/*",
			"--allow=break:jobs/*", "--allow=policy:jobs/*"}})
	a := s.post(secrets["victim"], "/v1/acquire", `{"resource":"secret/lock","ttl":"10m","holder":"h"}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	v := &victim{resource: "secret/lock", token: a.fields["token"].(float64), nonce: a.fields["nonce"].(float64),
		session: a.fields["sessionId"].(string)}
	return s, v, secrets
}

// A caller without a secret, a user without rights, and a user with rights on other
// locks are refused by every call of every service, over gRPC and over HTTP, even if they
// know token, nonce and session of the lease. Nothing is returned, and nothing changes.
//
// Users may end and renew what they own without any right. There the lease of another
// user is treated as one that does not exist, so that nobody can guess tokens.
func TestEveryCallNeedsRights(t *testing.T) {
	t.Parallel()
	s, v, secrets := startVictim(t)
	before := s.state(v)
	refused := 0
	for _, caller := range []struct {
		name, code string
		err        error
		status     int
		allowed    []string
	}{
		{"", "unauthenticated", wire.ErrUnauthenticated, http.StatusUnauthorized, publicCalls},
		{"nobody", "forbidden", engine.ErrForbidden, http.StatusForbidden, publicCalls},
		{"neighbour", "forbidden", engine.ErrForbidden, http.StatusForbidden, append(commonCalls, publicCalls...)},
	} {
		conn := s.dial(secrets[caller.name])
		for _, m := range calls() {
			for _, request := range v.requests(m) {
				what := fmt.Sprintf("%q calls %s with %v", caller.name, nameOf(m), request)
				answer, err := v.grpc(t, conn, m, request)
				if contains(caller.allowed, nameOf(m)) {
					require.NoError(t, err, what)
					continue
				}
				switch {
				case owned(m, caller.name) && (err == nil || errors.Is(err, engine.ErrNotHeld)):
				case err != nil && strings.Contains(err.Error(), "is not open on this stream"): // and to attach it is forbidden
				default:
					require.ErrorIs(t, err, caller.err, what)
				}
				require.Zero(t, proto.Size(answer), "%s: answered %v", what, answer)
				refused++
				if m.IsStreamingClient() && m.IsStreamingServer() {
					continue // HTTP does not offer it
				}
				body, err := protojson.Marshal(request)
				require.NoError(t, err)
				for _, path := range paths(m) {
					a := s.post(secrets[caller.name], path, string(body))
					if !owned(m, caller.name) || a.text != `{"released":false}`+"\n" && a.text != "{}\n" && a.code != "not-held" {
						require.Equal(t, caller.status, a.status, "%s over HTTP: %s", what, a.text)
						require.Equal(t, caller.code, a.code, what)
					}
					require.NotContains(t, a.text, `"token"`, what)
					refused++
				}
			}
		}
	}
	require.Equal(t, before, s.state(v), "a refused call changed something")
	t.Logf("%d calls, three callers without the rights: %d requests refused", len(calls()), refused)
	require.Equal(t, true, s.post(secrets["victim"], "/v1/release", fmt.Sprintf(`{"resource":"secret/lock","token":%.0f}`,
		v.token)).fields["released"])
}

// owned reports whether a call may say that the lease is not held instead of refusing a
// user that does not own it.
func owned(m protoreflect.MethodDescriptor, user string) bool {
	return user != "" && contains([]string{"LeaseService/Renew", "LeaseService/Release", "LeaseService/Sign"}, nameOf(m))
}

func contains(list []string, name string) bool {
	for _, each := range list {
		if each == name {
			return true
		}
	}
	return false
}

// What a user may read of a lock shows neither token nor nonce nor session of another
// user, in any call that returns a lock.
func TestReadersSeeNoTokens(t *testing.T) {
	t.Parallel()
	s, secrets := startWithUsers(t, map[string][]string{"victim": {"--allow=acquire:*"}, "reader": {"--allow=read:*"}})
	a := s.post(secrets["victim"], "/v1/acquire", `{"resource":"a","ttl":"10m","holder":"h"}`)
	require.Equal(t, http.StatusOK, a.status, a.text)
	session, token := a.fields["sessionId"].(string), fmt.Sprintf(`"token":%.0f`, a.fields["token"])
	for path, body := range map[string]string{"/v1/inspect": `{"resource":"a"}`, "/v1/list": `{}`,
		"/v1/acquire": `{"resource":"a"}`} {
		seen := s.post(secrets["reader"], path, body).text
		require.NotContains(t, seen, session, path)
		require.NotContains(t, seen, token, path)
		require.NotContains(t, seen, `"nonce"`, path)
	}
	stream, err := pb.NewLeaseServiceClient(s.dial(secrets["reader"])).Watch(testContext(t),
		&pb.WatchRequest{Resource: "a"})
	require.NoError(t, err)
	event, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "h", event.Party.Holder)
	require.Equal(t, "victim", event.Party.User)
	require.Zero(t, event.Party.Token)
	require.Zero(t, event.Party.Nonce)
	require.Empty(t, strings.Trim(event.Party.SessionId, "0"))
}

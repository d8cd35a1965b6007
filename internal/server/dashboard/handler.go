package dashboard

import (
	"context"
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/routing"
	"github.com/leased-project/leased/lease/engine"
)

// Config has the parts of a Handler. All are required.
type Config struct {
	Chain    *calls.Chain
	Leases   pb.LeaseServiceServer
	Policies pb.PolicyServiceServer
	Redis    pb.RedisServiceServer
	Cluster  pb.ClusterServiceServer
	// Local answers from the state of this member, while there is no leader.
	Local Local
	// Encode returns a message as JSON.
	Encode  func(proto.Message) []byte
	Version string
	Clock   engine.Clock
}

// Local reads the state of this member, which may be old. The functions do not check
// rights, except for what a party shows to others than its owner.
type Local struct {
	Inspect  func(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error)
	History  func(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error)
	Policies func(ctx context.Context) (*pb.ListPoliciesResponse, error)
}

// Handler serves the page and its data.
type Handler struct {
	Config
	router *routing.Router
	files  map[string]file // by path
}

// New returns a Handler.
func New(config Config) *Handler {
	return &Handler{Config: config, router: config.Chain.Router, files: loadFiles()}
}

// me is the answer of GET /ui/me.
type me struct {
	Users   bool     `json:"users"` // the service has users
	User    string   `json:"user"`
	Rights  []string `json:"rights"`
	Member  string   `json:"member"`
	Version string   `json:"version"`
}

// Me writes who the caller is and which rights it has.
func (h *Handler) Me(w http.ResponseWriter, r *http.Request) {
	answer := me{Users: h.Chain.Users != nil, User: auth.UserName(r.Context()), Rights: []string{},
		Member: h.router.Node.ID(), Version: h.Version}
	for _, rule := range auth.RulesOf(r.Context()) {
		answer.Rights = append(answer.Rights, rule.String())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // nothing can be done if the client is gone
}

package dashboard

import (
	"context"
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/admin"
	"github.com/leased-project/leased/internal/server/auth"
	"github.com/leased-project/leased/internal/server/calls"
	"github.com/leased-project/leased/internal/server/routing"
)

// Leases are the calls on locks. The local ones answer from the state of this member, which may be old, while
// there is no leader. They do not check rights, except for what a party shows to others than its owner.
type Leases interface {
	pb.LeaseServiceServer
	LocalInspect(context.Context, *pb.InspectRequest) (*pb.InspectResponse, error)
	LocalHistory(context.Context, *pb.HistoryRequest) (*pb.HistoryResponse, error)
}

// Handler serves the page and its data.
type Handler struct {
	chain  *calls.Chain
	router *routing.Router
	leases Leases
	admin  *admin.Service
	encode func(proto.Message) []byte
	files  map[string]file // by path
}

// New returns a Handler. encode returns a message as JSON.
func New(chain *calls.Chain, leases Leases, operators *admin.Service, encode func(proto.Message) []byte) *Handler {
	return &Handler{chain: chain, router: chain.Router, leases: leases, admin: operators, encode: encode,
		files: loadFiles()}
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
	answer := me{Users: h.chain.Users != nil, User: auth.UserName(r.Context()), Rights: []string{},
		Member: h.router.Node.ID(), Version: h.admin.Version}
	for _, rule := range auth.RulesOf(r.Context()) {
		answer.Rights = append(answer.Rights, rule.String())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // nothing can be done if the client is gone
}

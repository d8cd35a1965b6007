package httpapi

import (
	"net/http"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/dashboard"
)

// page serves the files of the dashboard, and refuses all unknown paths.
func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	if !h.Dashboard.IsFile(r.URL.Path) {
		noSuchPath(w, r)
		return
	}
	only(h.Dashboard.File, http.MethodGet, http.MethodHead)(w, r)
}

// me tells the dashboard who the caller is.
func (h *Handler) me(w http.ResponseWriter, r *http.Request) {
	if err := h.Limits.CheckCall(r.Context(), dashboard.MePath); err != nil {
		h.answer(w, nil, err)
		return
	}
	h.Dashboard.Me(w, r)
}

// live serves the data of the dashboard. A follower forwards the stream to the leader if
// there is one, and otherwise answers from its own state.
func (h *Handler) live(w http.ResponseWriter, r *http.Request) {
	done, err := h.Limits.Open(r.Context(), pb.LeaseService_Watch_FullMethodName)
	if err != nil {
		h.answer(w, nil, err)
		return
	}
	defer done()
	leader := h.Router.LeaderAddress()
	if !h.Router.Node.Leads() && leader != "" && leader != h.Router.Address && r.Header.Get(forwardedHeader) == "" {
		h.forward(w, r, leader)
		return
	}
	if err := h.Dashboard.Live(w, r); err != nil {
		h.answer(w, nil, err)
	}
}

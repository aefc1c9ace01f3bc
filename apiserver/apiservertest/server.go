// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// defaultHistory is how many changes a server keeps for watches.
const defaultHistory = 10_000

// maxBody is how large the body of a request may be.
const maxBody = 3 << 20

// Options tunes a [Server]. The zero value is for most tests.
type Options struct {
	History int // changes kept for watches, from older versions they get 410; zero: 10,000
	// Admit is asked about each request that would write: obj is what would be stored, and nil for a deletion. An error of the
	// API is answered as it is, any other as 403. It is called with the server locked.
	Admit func(verb string, before, obj Object) error
}

// Server is an API server in memory. Make one with [NewServer].
type Server struct {
	opts  Options
	kinds *kinds
	store *store
	pages pages
	log   log
	fault faults

	wg sync.WaitGroup // requests of the transport
}

// NewServer returns a server without objects. It starts nothing: requests come through [Server.Transport], [Server.Config] or
// [Server.Listen].
func NewServer(o Options) *Server {
	if o.History == 0 {
		o.History = defaultHistory
	}
	k, err := newKinds()
	if err != nil {
		panic(err) // the types of k8s.io/api do not fit together
	}
	s := &Server{opts: o, kinds: k, store: newStore(k, o.History)}
	s.fault.down = make(chan struct{})
	return s
}

// Config returns a configuration of a client whose requests reach the server without a socket.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://apiserver.test", Transport: s.Transport()}
}

// ServeHTTP answers a request of the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := &call{Server: s, w: w, r: r}
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz":
		_, _ = io.WriteString(w, "ok")
		return
	case "/version":
		call.answerJSON(http.StatusOK, version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1-apiservertest"})
		return
	}
	if !call.open() {
		return
	}
	call.serve()
}

// call is one request with its answer.
type call struct {
	*Server
	w    http.ResponseWriter
	r    *http.Request
	body []byte
	address
	verb     string
	index    int // in the log
	out      encoding
	cutAfter time.Duration // of a watch; zero: never
}

// open finds out what a request wants and notes it. It is false where the request was answered.
func (c *call) open() bool {
	var ok bool
	if c.address, ok = c.kinds.parse(c.r.URL.Path); !ok {
		c.answerJSON(http.StatusNotFound, apierrors.NewGenericServerResponse(http.StatusNotFound, "get",
			schema.GroupResource{}, c.r.URL.Path, "the server could not find the requested resource", 0, true).ErrStatus)
		return false
	}
	var err error
	c.body, err = io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	c.verb = c.findVerb()
	c.index = c.log.add(c)
	c.out = c.negotiate()
	switch {
	case err != nil:
		c.fail(apierrors.NewRequestEntityTooLargeError(err.Error()))
	case c.verb == "":
		c.fail(apierrors.NewMethodNotSupported(c.kind.groupResource(), c.r.Method))
	case c.out.info.Serializer == nil:
		c.fail(apierrors.NewGenericServerResponse(http.StatusNotAcceptable, c.verb, c.kind.groupResource(), c.name,
			"only JSON and protobuf are served, not "+c.r.Header.Get("Accept"), 0, true))
	default:
		return true
	}
	return false
}

// findVerb returns the verb of the API, or nothing for one that the server does not have.
func (c *call) findVerb() string {
	one := c.name != ""
	switch c.r.Method {
	case http.MethodGet:
		watch := c.r.URL.Query().Get("watch")
		switch {
		case one:
			return "get"
		case watch == "true" || watch == "1":
			return "watch"
		default:
			return "list"
		}
	case http.MethodPost:
		if !one || c.subresource != "" {
			return "create"
		}
	case http.MethodPut:
		if one {
			return "update"
		}
	case http.MethodPatch:
		if one {
			return "patch"
		}
	case http.MethodDelete:
		if one && c.subresource == "" {
			return "delete"
		}
	}
	return ""
}

// serve does what faults leave of a request.
func (c *call) serve() {
	fault := c.fault.find(c)
	if fault == nil {
		c.do()
		return
	}
	if !c.suffer(fault) {
		return
	}
	if fault.LoseResponse {
		c.w = discard{http.Header{}}
		c.do()
		panic(http.ErrAbortHandler)
	}
	c.do()
}

func (c *call) do() {
	obj, code, err := c.dispatch()
	switch {
	case err != nil:
		c.fail(err)
	case obj != nil:
		c.answer(code, obj)
	}
}

// fail answers with an error.
func (c *call) fail(err error) {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		status = apierrors.NewBadRequest(err.Error())
	}
	answer := status.Status()
	answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if d := answer.Details; d != nil && d.RetryAfterSeconds > 0 {
		c.w.Header().Set("Retry-After", fmt.Sprint(d.RetryAfterSeconds))
	}
	if c.out.info.Serializer == nil {
		c.answerJSON(int(answer.Code), answer)
		return
	}
	c.answer(int(answer.Code), &answer)
}

func (c *call) answerJSON(code int, v any) {
	c.log.answered(c.index, code)
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(code)
	_ = json.NewEncoder(c.w).Encode(v) // the client may be away by now
}

// discard is an answer that is lost.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}

// mediaType returns a Content-Type without its parameters.
func mediaType(header string) string {
	name, _, _ := strings.Cut(header, ";")
	return strings.TrimSpace(name)
}

// ended reports whether the client has given up.
func (c *call) ended() context.Context { return c.r.Context() }

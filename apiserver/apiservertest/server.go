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

// maxBody is the largest body of a request, in bytes.
const maxBody = 3 << 20

// Options configures a [Server]. The zero value suits most tests.
type Options struct {
	Kinds   []Kind // further kinds, such as those of custom resources; nil: none. NewServer panics if a kind is invalid.
	History int    // number of stored changes; watches from an older version get 410; zero: 10,000
	// RequestLog is the number of requests that Server.Requests keeps, the last ones, with at most 64 MiB of bodies; zero: 10,000.
	RequestLog int
	// Admit admits a write request: before is nil for a creation, obj for a deletion. A request with an error fails with that API
	// error or with 403. Admit is called with the server locked and must not call it. Nil: all requests are admitted.
	Admit func(verb string, before, obj Object) error
}

// Server is an API server in memory. Create one with [NewServer].
type Server struct {
	opts   Options
	kinds  *kinds
	store  *store
	pages  pages
	log    requestLog
	faults faults

	wg sync.WaitGroup // requests of Transport in flight
}

// NewServer returns a server without objects. It opens no listener: requests arrive through [Server.Transport],
// [Server.Config] or [Server.Listen].
func NewServer(opts Options) *Server {
	if opts.History == 0 {
		opts.History = defaultHistory
	}
	if opts.RequestLog == 0 {
		opts.RequestLog = defaultRequestLog
	}
	k, err := newKinds(opts.Kinds)
	if err != nil {
		panic(err) // a required field of Options.Kinds is empty, or two kinds conflict
	}
	s := &Server{opts: opts, kinds: k, store: newStore(k, opts.History)}
	s.faults.disconnect = make(chan struct{})
	s.log.limit = opts.RequestLog
	return s
}

// Config returns a client config whose requests reach the server without a socket, through [Server.Transport].
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://apiserver.test", Transport: s.Transport()}
}

// ServeHTTP handles one API request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.faults.isUnavailable() {
		panic(http.ErrAbortHandler)
	}
	call := &call{server: s, w: w, r: r, dryRun: r.URL.Query().Has("dryRun"), index: -1}
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz":
		_, _ = io.WriteString(w, "ok")
		return
	case "/version":
		call.writeJSON(http.StatusOK, version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1-apiservertest"})
		return
	}
	if call.serveDiscovery() || !call.parseRequest() {
		return
	}
	call.serveWithFaults()
}

// call is one request and its response.
type call struct {
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	address
	verb            string
	dryRun          bool    // the request changes nothing
	request         Request // entry of the request log, without a code
	index           int     // in the request log; -1: not logged
	encoding        encoding
	disconnectAfter time.Duration // of a watch; zero: never
}

// parseRequest reads and logs the request. If the request is invalid, it sends an error response and returns false.
func (c *call) parseRequest() bool {
	var ok bool
	if c.address, ok = c.server.kinds.parsePath(c.r.URL.Path); !ok {
		c.writeJSON(http.StatusNotFound, apierrors.NewGenericServerResponse(http.StatusNotFound, "get",
			schema.GroupResource{}, c.r.URL.Path, "the server could not find the requested resource", 0, true).ErrStatus)
		return false
	}
	var err error
	c.body, err = io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	c.verb = c.findVerb()
	c.request = c.loggedRequest()
	c.index = c.server.log.addRequest(c.request)
	c.encoding = c.negotiateEncoding()
	switch {
	case err != nil:
		c.writeError(apierrors.NewRequestEntityTooLargeError(err.Error()))
	case c.verb == "":
		c.writeError(apierrors.NewMethodNotSupported(c.kind.groupResource(), c.r.Method))
	case c.encoding.info.Serializer == nil:
		c.writeError(apierrors.NewGenericServerResponse(http.StatusNotAcceptable, c.verb, c.kind.groupResource(), c.name,
			"only JSON and protobuf are served, not "+c.r.Header.Get("Accept"), 0, true))
	default:
		return true
	}
	return false
}

// findVerb returns the API verb of the request, such as list or watch, or "" if the HTTP method is not supported.
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
		switch {
		case one && c.subresource == "":
			return "delete"
		case !one && (c.namespace != "" || !c.kind.namespaced):
			return "deletecollection"
		}
	}
	return ""
}

// serveWithFaults handles the request, unless an injected fault delays or fails it.
func (c *call) serveWithFaults() {
	fault := c.server.faults.findFault(c)
	if fault == nil {
		c.serveRequest()
		return
	}
	if !c.applyFault(fault) {
		return
	}
	if fault.LoseResponse {
		c.w = discardWriter{http.Header{}}
		c.serveRequest()
		panic(http.ErrAbortHandler)
	}
	c.serveRequest()
}

func (c *call) serveRequest() {
	obj, code, err := c.dispatchVerb()
	switch {
	case err != nil:
		c.writeError(err)
	case obj != nil:
		c.writeObject(code, obj)
	}
}

// writeError sends err as the response.
func (c *call) writeError(err error) {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		status = apierrors.NewBadRequest(err.Error())
	}
	answer := status.Status()
	answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if d := answer.Details; d != nil && d.RetryAfterSeconds > 0 {
		c.w.Header().Set("Retry-After", fmt.Sprint(d.RetryAfterSeconds))
	}
	if c.encoding.info.Serializer == nil {
		c.writeJSON(int(answer.Code), answer)
		return
	}
	c.writeObject(int(answer.Code), &answer)
}

func (c *call) writeJSON(code int, v any) {
	c.server.log.setCode(c.index, code)
	if c.w.Header().Get("Content-Type") == "" {
		c.w.Header().Set("Content-Type", "application/json")
	}
	c.w.WriteHeader(code)
	_ = json.NewEncoder(c.w).Encode(v) // the client may have disconnected
}

// discardWriter is a response that is not sent.
type discardWriter struct{ header http.Header }

func (d discardWriter) Header() http.Header         { return d.header }
func (d discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (d discardWriter) WriteHeader(int)             {}
func (d discardWriter) Flush()                      {}

// mediaType returns the media type in a Content-Type header, without parameters.
func mediaType(header string) string {
	name, _, _ := strings.Cut(header, ";")
	return strings.TrimSpace(name)
}

// clientContext returns the context of the request. It ends when the client disconnects.
func (c *call) clientContext() context.Context { return c.r.Context() }

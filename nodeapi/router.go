// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// router selects the handler of a request in two steps, as the kubelet does. First a [http.ServeMux] matches the start of the
// path; it redirects paths such as //pods and responds with 404. Then the routes match the whole path, the method and the Accept
// header. Only the responses of the mux need no authorization.
type router struct {
	mux         *http.ServeMux
	guard       func(http.Handler) http.Handler // authorizes the requests of a handler
	routes      []route
	paths       []string // paths of addHandler, for /statusz
	metricPaths map[string]bool
}

// route is a path pattern with its methods and handler.
type route struct {
	elements []string // {x} matches one element, {x:*} the remaining ones, at least one
	methods  []string
	produces string // media type of the response; empty: only */* is acceptable
	handler  func(http.ResponseWriter, *http.Request, params)
}

// params has the path elements that match the variables of a route, by variable name.
type params map[string]string

func newRouter(guard func(http.Handler) http.Handler) *router {
	return &router{mux: http.NewServeMux(), guard: guard, metricPaths: make(map[string]bool)}
}

// addHandler registers the handler h for path and all methods. If path ends in a slash, h also serves all paths below it.
func (r *router) addHandler(path string, h http.Handler) {
	r.mux.Handle(path, r.guard(h))
	r.paths = append(r.paths, path)
}

// addRoot makes serveRoute handle root and all paths below it. The first path element of each route must be a root.
func (r *router) addRoot(root string) {
	h := r.guard(http.HandlerFunc(r.serveRoute))
	r.mux.Handle(root, h)
	if !strings.HasSuffix(root, "/") {
		r.mux.Handle(root+"/", h)
	}
}

// addRoute adds a route: handler serves requests with these methods for paths that match pattern. mediaType is the media type
// of its responses. The first path element must be a root; see addRoot.
func (r *router) addRoute(pattern, mediaType string, handler func(http.ResponseWriter, *http.Request, params), methods ...string) {
	r.routes = append(r.routes, route{elements: splitPath(pattern), methods: methods, produces: mediaType, handler: handler})
}

// addMetricPaths adds allowed values of the label "path" of request metrics: names are starts of URL paths, such as "pods".
// Requests for all other paths get the label value "other".
func (r *router) addMetricPaths(names ...string) {
	for _, name := range names {
		r.metricPaths[name] = true
	}
}

// splitPath returns the elements of path, split at each slash. Slashes at the start and end are ignored.
func splitPath(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// serveRoute calls the handler of the first route that matches the path, or responds with 404, 405 or 406.
func (r *router) serveRoute(w http.ResponseWriter, req *http.Request) {
	got := splitPath(req.URL.Path)
	var found *route
	var values params
	for i := range r.routes {
		if v, ok := r.routes[i].matchPath(got); ok {
			found, values = &r.routes[i], v
			break
		}
	}
	switch {
	case found == nil:
		writeText(w, http.StatusNotFound, "404: Page Not Found")
	case !slices.Contains(found.methods, req.Method):
		w.Header().Set("Allow", strings.Join(found.methods, ", "))
		writeText(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
	case !acceptsMedia(req.Header.Get("Accept"), found.produces):
		writeText(w, http.StatusNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+found.produces)
	default:
		found.handler(w, req, values)
	}
}

func (r *route) matchPath(got []string) (params, bool) {
	values := make(params)
	for i, want := range r.elements {
		if i == len(got) {
			return nil, false
		}
		name, variable := strings.CutPrefix(want, "{")
		name = strings.TrimSuffix(name, "}")
		rest, all := strings.CutSuffix(name, ":*")
		switch {
		case all:
			values[rest] = strings.Join(got[i:], "/")
			return values, true
		case variable:
			values[name] = got[i]
		case want != got[i]:
			return nil, false
		}
	}
	return values, len(got) == len(r.elements)
}

// acceptsMedia reports whether an Accept header allows a response of this media type. A missing header allows every response.
// Parameters in the header, such as q=0.5, are ignored.
func acceptsMedia(header, mediaType string) bool {
	if header == "" {
		return true
	}
	for kind := range strings.SplitSeq(header, ",") {
		kind, _, _ = strings.Cut(kind, ";")
		kind = strings.Trim(kind, " ")
		if kind == "*/*" || mediaType != "" && kind == mediaType {
			return true
		}
	}
	return false
}

// writeText writes a text response without a content type: net/http derives it from the text, as for the kubelet's errors.
func writeText(w http.ResponseWriter, code int, text string) {
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

const jsonType = "application/json"

// writeJSON responds with status 200 and a JSON body.
func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
}

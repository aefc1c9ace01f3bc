// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// router finds the handler of a request in two steps, as the kubelet's does: a [http.ServeMux] knows first elements of paths, redirects
// what is not clean and answers what nobody serves; the routes below are chosen by the rest of the path, the method and the header Accept.
// What the mux answers needs no credentials, all else does.
type router struct {
	mux    *http.ServeMux
	guard  func(http.Handler) http.Handler
	routes []route
	paths  []string // that were given to handle, for /statusz
	bucket map[string]bool
}

// route is one path with its methods.
type route struct {
	elements []string // {x} takes any element, {x:*} the rest, which is not empty
	methods  []string
	produces string // of the header Accept; empty: nothing but */*
	handler  func(http.ResponseWriter, *http.Request, params)
}

// params are the elements of a path that a route names.
type params map[string]string

func newRouter(guard func(http.Handler) http.Handler) *router {
	return &router{mux: http.NewServeMux(), guard: guard, bucket: make(map[string]bool)}
}

// handle serves a path, or all below it where it ends with a slash, with any method.
func (r *router) handle(path string, h http.Handler) {
	r.mux.Handle(path, r.guard(h))
	r.paths = append(r.paths, path)
}

// service takes a first part of paths for routes that are added.
func (r *router) service(root string) {
	h := r.guard(http.HandlerFunc(r.dispatch))
	r.mux.Handle(root, h)
	if !strings.HasSuffix(root, "/") {
		r.mux.Handle(root+"/", h)
	}
}

// add adds a route. Its root was given to service.
func (r *router) add(path, produces string, handler func(http.ResponseWriter, *http.Request, params), methods ...string) {
	r.routes = append(r.routes, route{elements: elements(path), methods: methods, produces: produces, handler: handler})
}

// buckets names paths that metrics tell apart.
func (r *router) buckets(names ...string) {
	for _, name := range names {
		r.bucket[name] = true
	}
}

// elements returns the parts of a path between slashes. Empty ones count within it.
func elements(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// dispatch serves a request by one of the routes.
func (r *router) dispatch(w http.ResponseWriter, req *http.Request) {
	got := elements(req.URL.Path)
	var found *route
	var values params
	for i := range r.routes {
		if v, ok := r.routes[i].match(got); ok {
			found, values = &r.routes[i], v
			break
		}
	}
	switch {
	case found == nil:
		text(w, http.StatusNotFound, "404: Page Not Found")
	case !slices.Contains(found.methods, req.Method):
		w.Header().Set("Allow", strings.Join(found.methods, ", "))
		text(w, http.StatusMethodNotAllowed, "405: Method Not Allowed")
	case !accepts(req.Header.Get("Accept"), found.produces):
		text(w, http.StatusNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+found.produces)
	default:
		found.handler(w, req, values)
	}
}

func (r *route) match(got []string) (params, bool) {
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

// accepts reports whether a header Accept takes a media type. Parameters do not count.
func accepts(header, produces string) bool {
	if header == "" {
		return true
	}
	for kind := range strings.SplitSeq(header, ",") {
		kind, _, _ = strings.Cut(kind, ";")
		kind = strings.Trim(kind, " ")
		if kind == "*/*" || produces != "" && kind == produces {
			return true
		}
	}
	return false
}

// text answers with a text whose type net/http finds out, as the kubelet's errors do.
func text(w http.ResponseWriter, code int, text string) {
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

const jsonType = "application/json"

// writeJSON answers with a body of JSON.
func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net/http"
	"strings"
)

// Request is what is known of a request from its method and path. A field is empty where it has no such thing.
type Request struct {
	Verb        string // get, list, watch, create, update, patch, delete; in capitals: the method of a path that is no object's
	Resource    string // such as pods
	Subresource string // such as status
	Namespace   string
	Name        string
	Path        string
}

// Match selects requests. A field that is empty matches all; "-" matches what is empty in the request. Path is a prefix.
type Match Request

// Matches reports whether a request is one of those.
func (m Match) Matches(r Request) bool {
	match := func(want, is string) bool { return want == "" || want == is || want == "-" && is == "" }
	return match(m.Verb, r.Verb) && match(m.Resource, r.Resource) && match(m.Subresource, r.Subresource) &&
		match(m.Namespace, r.Namespace) && match(m.Name, r.Name) && strings.HasPrefix(r.Path, m.Path)
}

// parse reads a request: /api/VERSION/... or /apis/GROUP/VERSION/..., and then [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func parse(r *http.Request) Request {
	parsed := Request{Verb: r.Method, Path: r.URL.Path}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return parsed
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parsed.Namespace, parts = parts[1], parts[2:]
	}
	for i, field := range []*string{&parsed.Resource, &parsed.Name, &parsed.Subresource} {
		if i < len(parts) {
			*field = parts[i]
		}
	}
	parsed.Verb = verb(r, parsed.Name != "")
	return parsed
}

// verb returns what is done to an object, or to several.
func verb(r *http.Request, one bool) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	watch := r.URL.Query().Get("watch")
	switch {
	case watch == "true" || watch == "1":
		return "watch"
	case one:
		return "get"
	default:
		return "list"
	}
}

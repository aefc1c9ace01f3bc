// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net/http"
	"strings"
)

// Request is the API request that a method and a path represent. Fields that do not apply are empty.
type Request struct {
	Verb        string // get, list, watch, create, update, patch or delete; for other paths the HTTP method in capitals
	Resource    string // plural name, such as pods
	Subresource string // such as status
	Namespace   string
	Name        string
	Path        string
}

// Match selects requests. An empty field matches any value, and "-" an empty value. Path is a prefix.
type Match Request

// Matches reports whether m selects r. An empty field of m matches every value, and "-" only the empty value. Other values
// must be equal. m.Path is a prefix of the path.
func (m Match) Matches(r Request) bool {
	match := func(want, is string) bool { return want == "" || want == is || want == "-" && is == "" }
	return match(m.Verb, r.Verb) && match(m.Resource, r.Resource) && match(m.Subresource, r.Subresource) &&
		match(m.Namespace, r.Namespace) && match(m.Name, r.Name) && strings.HasPrefix(r.Path, m.Path)
}

// parseRequest returns the verb, resource, subresource, namespace and name of a request to the Kubernetes API.
func parseRequest(r *http.Request) Request {
	parsed := Request{Verb: r.Method, Path: r.URL.Path}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	// /api/VERSION or /apis/GROUP/VERSION, then [/namespaces/NAMESPACE]/RESOURCE[/NAME[/SUBRESOURCE]]
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
	parsed.Verb = requestVerb(r, parsed.Name != "")
	return parsed
}

// requestVerb returns the Kubernetes verb of a request, such as "list". named is true if its path contains an object's name.
func requestVerb(r *http.Request, named bool) string {
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
	case named:
		return "get"
	default:
		return "list"
	}
}

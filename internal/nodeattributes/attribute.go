// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeattributes returns the attributes for the authorization of a request to the HTTP API of a node: verbs on
// subresources of its Node. It is pure.
package nodeattributes

import (
	"net/http"
	"strings"
)

// Attribute is a verb on a subresource of the Node, as an authorizer checks it.
type Attribute struct {
	Verb        string // verb of the Kubernetes API; empty for HTTP methods without one, such as HEAD
	Subresource string // subresource of nodes, such as proxy
}

// ForRequest returns the attributes that an authorizer checks for a request, of which one must be allowed. For exec, attach,
// portForward and run, the verb is create even for GET, because WebSocket clients use GET. path is unescaped, like the Path
// of a [net/url.URL].
func ForRequest(method, path string) []Attribute {
	all := ForKubeletRequest(method, path)
	if method == http.MethodGet && isSessionPath(path) {
		for i := range all {
			all[i].Verb = "create"
		}
	}
	return all
}

// ForKubeletRequest returns the attributes that a kubelet checks. Their verb depends only on the HTTP method, so that the
// verb get on nodes/proxy permits commands in containers; [ForRequest] prevents this. Source: GetRequestAttributes in
// pkg/kubelet/server/auth.go, with the feature gate KubeletFineGrainedAuthz (KEP-2862).
func ForKubeletRequest(method, path string) []Attribute {
	verb := verbOf(method)
	var all []Attribute
	for _, name := range subresources(path) {
		all = append(all, Attribute{Verb: verb, Subresource: name})
	}
	return all
}

// verbOf returns the Kubernetes verb of an HTTP method, or "" for an unknown method.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// subresources returns the subresources of nodes of which one is required for path. A specific subresource, such as pods,
// precedes proxy. For some paths, such as /stats, proxy is not enough.
func subresources(path string) []string {
	switch {
	case isWithin(path, "/pods"), isWithin(path, "/allocatedPods"), isWithin(path, "/runningpods"):
		return []string{"pods", "proxy"}
	case isWithin(path, "/healthz"):
		return []string{"healthz", "proxy"}
	case isWithin(path, "/configz"):
		return []string{"configz", "proxy"}
	case isWithin(path, "/stats"):
		return []string{"stats"}
	case isWithin(path, "/metrics"):
		return []string{"metrics"}
	case isWithin(path, "/logs"):
		return []string{"log"}
	case isWithin(path, "/checkpoint"):
		return []string{"checkpoint"}
	case isWithin(path, "/statusz"):
		return []string{"statusz"}
	case isWithin(path, "/flagz"):
		return []string{"configz"}
	}
	return []string{"proxy"}
}

// isWithin reports whether path is dir or below it.
func isWithin(path, dir string) bool {
	rest, found := strings.CutPrefix(path, dir)
	return found && (rest == "" || rest[0] == '/')
}

// isSessionPath reports whether a request for path runs a command in a pod or connects to a pod.
func isSessionPath(path string) bool {
	// The HTTP handler ignores additional leading slashes too.
	first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	switch first {
	case "exec", "attach", "portForward", "run":
		return true
	}
	return false
}

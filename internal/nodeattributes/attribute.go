// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeattributes returns the attributes that a request to the HTTP API of a node is authorized by: verbs on subresources of its
// Node. It is pure.
package nodeattributes

import (
	"net/http"
	"strings"
)

// Attribute is a verb on a subresource of the Node, which a user may be allowed.
type Attribute struct {
	Verb        string // of the Kubernetes API; empty for methods that have none, such as HEAD
	Subresource string // of nodes, such as proxy
}

// Of returns the attributes of a request, of which one is enough; they are checked in this order. The path is unescaped, as that of
// [net/url.URL]. Running something needs the verb create also where that is asked for by GET, as WebSocket clients do.
func ForRequest(method, path string) []Attribute {
	all := ForKubeletRequest(method, path)
	if method == http.MethodGet && runs(path) {
		for i := range all {
			all[i].Verb = "create"
		}
	}
	return all
}

// OfKubelet returns the attributes of a request to a kubelet, where the verb is that of the method alone: whoever may get
// nodes/proxy runs commands in containers. Source: GetRequestAttributes in pkg/kubelet/server/auth.go, with the gate
// KubeletFineGrainedAuthz (KEP-2862).
func ForKubeletRequest(method, path string) []Attribute {
	verb := verbOf(method)
	var all []Attribute
	for _, name := range subresources(path) {
		all = append(all, Attribute{Verb: verb, Subresource: name})
	}
	return all
}

// verbOf returns the verb of a method, which is empty for those that the Kubernetes API does not have.
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

// subresources returns the subresources of nodes that a path belongs to, the finest first. What has no name of its own is proxy.
func subresources(path string) []string {
	switch {
	case below(path, "/pods"), below(path, "/allocatedPods"), below(path, "/runningpods"):
		return []string{"pods", "proxy"}
	case below(path, "/healthz"):
		return []string{"healthz", "proxy"}
	case below(path, "/configz"):
		return []string{"configz", "proxy"}
	case below(path, "/stats"):
		return []string{"stats"}
	case below(path, "/metrics"):
		return []string{"metrics"}
	case below(path, "/logs"):
		return []string{"log"}
	case below(path, "/checkpoint"):
		return []string{"checkpoint"}
	case below(path, "/statusz"):
		return []string{"statusz"}
	case below(path, "/flagz"):
		return []string{"configz"}
	}
	return []string{"proxy"}
}

// below reports whether path is dir or something in it.
func below(path, dir string) bool {
	rest, found := strings.CutPrefix(path, dir)
	return found && (rest == "" || rest[0] == '/')
}

// runs reports whether a path is one by which something is run in a pod, or its ports are reached. Slashes before the first name do not
// matter, as they do not for the handler.
func runs(path string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	switch first {
	case "exec", "attach", "portForward", "run":
		return true
	}
	return false
}

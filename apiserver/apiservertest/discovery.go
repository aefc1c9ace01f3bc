// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// serveDiscovery answers a request for the supported groups, versions and resources. It returns false for any other request,
// and for an unknown group or version.
func (c *call) serveDiscovery() bool {
	parts := strings.Split(strings.Trim(c.r.URL.Path, "/"), "/")
	if c.r.Method != http.MethodGet || parts[0] != "api" && parts[0] != "apis" || len(parts) > 3 {
		return false
	}
	k, version := c.server.kinds, schema.GroupVersion{}
	switch {
	case len(parts) == 1 && c.wantsAggregated():
		c.w.Header().Set("Content-Type", aggregatedType)
		c.writeJSON(http.StatusOK, k.aggregatedGroups(parts[0] == "api"))
		return true
	case c.r.URL.Path == "/api" || c.r.URL.Path == "/api/":
		c.writeJSON(http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: k.versions("")})
		return true
	case len(parts) == 1:
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, group := range k.groups() {
			list.Groups = append(list.Groups, k.group(group))
		}
		c.writeJSON(http.StatusOK, list)
		return true
	case parts[0] == "api" && len(parts) == 2:
		version.Version = parts[1]
	case parts[0] == "apis" && len(parts) == 2 && len(k.versions(parts[1])) > 0:
		group := k.group(parts[1])
		group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		c.writeJSON(http.StatusOK, group)
		return true
	case parts[0] == "apis" && len(parts) == 3:
		version = schema.GroupVersion{Group: parts[1], Version: parts[2]}
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.String()}
	for _, kind := range k.kindsOf(version) {
		list.APIResources = append(list.APIResources, kind.apiResources()...)
	}
	if len(list.APIResources) == 0 {
		return false
	}
	c.writeJSON(http.StatusOK, list)
	return true
}

// groups returns the sorted names of all groups but the core group.
func (k *kinds) groups() []string {
	names := map[string]bool{}
	for at := range k.byResource {
		names[at.Group] = true
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// versions returns the versions of an API group. The first version is the preferred version.
func (k *kinds) versions(group string) []string {
	names := map[string]bool{}
	for at := range k.byResource {
		if at.Group == group {
			names[at.Version] = true
		}
	}
	return slices.SortedFunc(maps.Keys(names), func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
}

// group returns the discovery object of a group.
func (k *kinds) group(name string) metav1.APIGroup {
	group := metav1.APIGroup{Name: name}
	for _, v := range k.versions(name) {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

// kindsOf returns the kinds of a version, ordered by resource.
func (k *kinds) kindsOf(version schema.GroupVersion) []*kind {
	var found []*kind
	for at, kind := range k.byResource {
		if at.GroupVersion() == version {
			found = append(found, kind)
		}
	}
	slices.SortFunc(found, func(a, b *kind) int { return cmp.Compare(a.resource, b.resource) })
	return found
}

// apiResources returns the discovery objects of the kind: its resource, followed by its subresources.
func (k *kind) apiResources() []metav1.APIResource {
	list := []metav1.APIResource{{
		Name: k.resource, SingularName: strings.ToLower(k.Kind), Namespaced: k.namespaced, Kind: k.Kind,
		Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
	}}
	if k.shortName != "" {
		list[0].ShortNames = []string{k.shortName}
	}
	names := slices.Clone(k.subresources)
	if k.hasStatus {
		names = append(names, "status")
	}
	for _, name := range names {
		list = append(list, k.subresource(name))
	}
	return list
}

// subresource returns the discovery object of a subresource.
func (k *kind) subresource(name string) metav1.APIResource {
	r := metav1.APIResource{Name: k.resource + "/" + name, Namespaced: k.namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"get", "patch", "update"}}
	switch name {
	case "binding":
		r.Kind, r.Verbs = "Binding", metav1.Verbs{"create"}
	case "eviction":
		r.Group, r.Version, r.Kind, r.Verbs = "policy", "v1", "Eviction", metav1.Verbs{"create"}
	case "token":
		r.Group, r.Version, r.Kind, r.Verbs = "authentication.k8s.io", "v1", "TokenRequest", metav1.Verbs{"create"}
	case "scale":
		r.Group, r.Version, r.Kind = "autoscaling", "v1", "Scale"
	}
	return r
}

// aggregatedType is the media type of aggregated discovery.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// wantsAggregated reports whether the client accepts aggregated discovery, in which one response has the resources of all groups.
func (c *call) wantsAggregated() bool {
	for accepted := range strings.SplitSeq(c.r.Header.Get("Accept"), ",") {
		if strings.TrimSpace(accepted) == aggregatedType {
			return true
		}
	}
	return false
}

// aggregatedGroups returns an APIGroupDiscoveryList with the core group, or with all other groups.
func (k *kinds) aggregatedGroups(core bool) map[string]any {
	// maps, because the Go types of apidiscovery.k8s.io/v2 would be one more package for every program that imports this one
	groups, items := k.groups(), []any{}
	if core {
		groups = []string{corev1.GroupName}
	}
	for _, group := range groups {
		var versions []any
		for _, name := range k.versions(group) {
			var resources []any
			for _, kind := range k.kindsOf(schema.GroupVersion{Group: group, Version: name}) {
				resources = append(resources, kind.aggregatedResource())
			}
			versions = append(versions, map[string]any{"version": name, "freshness": "Current", "resources": resources})
		}
		items = append(items, map[string]any{"metadata": map[string]any{"name": group}, "versions": versions})
	}
	return map[string]any{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": map[string]any{}, "items": items}
}

// aggregatedResource returns the APIResourceDiscovery of the kind.
func (k *kind) aggregatedResource() map[string]any {
	var subresources []any
	list := k.apiResources()
	for _, sub := range list[1:] {
		_, name, _ := strings.Cut(sub.Name, "/")
		subresources = append(subresources, map[string]any{"subresource": name, "verbs": sub.Verbs, "responseKind": map[string]string{
			"group": cmp.Or(sub.Group, k.Group), "version": cmp.Or(sub.Version, k.Version), "kind": sub.Kind,
		}})
	}
	scope := "Cluster"
	if k.namespaced {
		scope = "Namespaced"
	}
	return map[string]any{
		"resource": k.resource, "scope": scope, "singularResource": list[0].SingularName, "verbs": list[0].Verbs, "shortNames": list[0].ShortNames,
		"responseKind": map[string]string{"group": k.Group, "version": k.Version, "kind": k.Kind}, "subresources": subresources,
	}
}

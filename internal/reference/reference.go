// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package reference parses image names as in pod specs: "busybox", "ghcr.io/team/app:v1", "localhost:5000/x@sha256:...". It
// accepts the same names as github.com/distribution/reference, which the kubelet and containerd use. It does not access
// registries.
//
// There is no test kit, because all functions are pure.
package reference

import "strings"

// DefaultTag is the tag of a name with neither tag nor digest.
const DefaultTag = "latest"

// DockerHub is the registry of names without a registry.
const DockerHub = "docker.io"

// legacyDockerHub is the older name of DockerHub, and defaultNamespace its namespace for names without one.
const (
	legacyDockerHub  = "index.docker.io"
	defaultNamespace = "library/"
)

// maxPathLength is the maximum length of Reference.Path.
const maxPathLength = 255

// Reference is a parsed image name. Two names of the same image, for example "busybox" and "docker.io/library/busybox:latest",
// differ only in Short and Tag.
type Reference struct {
	Short  string // the name as given, without tag and digest: "busybox"
	Domain string // registry: "docker.io"; empty for names whose first part is no valid registry
	Path   string // repository in the registry: "library/busybox"
	Tag    string // empty: no tag
	Digest string // for example "sha256:" and 64 digits; empty: no digest
}

// Repository returns registry and path, for example "docker.io/library/busybox". It is the key for credentials.
func (r Reference) Repository() string {
	if r.Domain == "" {
		return r.Path
	}
	return r.Domain + "/" + r.Path
}

// String returns the full reference, with [DefaultTag] if it has neither tag nor digest.
func (r Reference) String() string { return r.Repository() + r.tagAndDigest() }

// Tagged returns the reference as given, with [DefaultTag] if it has neither tag nor digest. It does not add a registry,
// because the runtime decides how to resolve a short name.
func (r Reference) Tagged() string { return r.Short + r.tagAndDigest() }

// Identity returns the full reference without redundant parts: if there is a digest, the tag is omitted, because runtimes
// ignore it.
func (r Reference) Identity() string {
	if r.Digest != "" {
		r.Tag = ""
	}
	return r.String()
}

// Identity returns the same string for all names of one image, for example "busybox" and "docker.io/library/busybox:latest". A
// string that is no valid reference, for example an ID, is returned unchanged.
func Identity(name string) string {
	ref, err := Parse(name)
	if err != nil {
		return name
	}
	return ref.Identity()
}

func (r Reference) tagAndDigest() string {
	var b strings.Builder
	switch {
	case r.Tag != "":
		b.WriteString(":" + r.Tag)
	case r.Digest == "":
		b.WriteString(":" + DefaultTag)
	}
	if r.Digest != "" {
		b.WriteString("@" + r.Digest)
	}
	return b.String()
}

// IsLatest reports whether an image name in a pod has the tag [DefaultTag], explicitly or by default. It returns false for
// invalid names. The default pull policy of such images is Always. Source: SetDefaults_Container in
// pkg/apis/core/v1/defaults.go of Kubernetes.
func IsLatest(image string) bool {
	r, err := Parse(image)
	return err == nil && (r.Tag == DefaultTag || r.Tag == "" && r.Digest == "")
}

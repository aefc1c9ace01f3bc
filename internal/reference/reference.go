// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package reference parses the names of images as they stand in a pod: "busybox", "ghcr.io/team/app:v1",
// "localhost:5000/x@sha256:...". It accepts what github.com/distribution/reference accepts, which is what the kubelet
// and containerd go by, and knows nothing of registries or of what they hold.
//
// Test kit: none is needed, as all of it is pure.
package reference

import "strings"

// DefaultTag is the tag that is meant when a name has neither a tag nor a digest.
const DefaultTag = "latest"

// DockerHub is the registry of names that do not begin with one.
const DockerHub = "docker.io"

// legacyHub is its older name, and library the namespace in it of names without one.
const (
	legacyHub = "index.docker.io"
	library   = "library/"
)

// maxPath is how long Path may be.
const maxPath = 255

// Reference is the name of an image, taken apart. Two strings that name the same image, such as "busybox" and
// "docker.io/library/busybox:latest", differ in Short, and in Tag, and in nothing else.
type Reference struct {
	Short  string // as it was given, without tag and digest: "busybox"
	Domain string // the registry: "docker.io"; empty for some names that no registry can have
	Path   string // the repository in the registry: "library/busybox"
	Tag    string // empty when there is none
	Digest string // such as "sha256:" and 64 digits; empty when there is none
}

// Repository returns registry and path: "docker.io/library/busybox". Credentials are looked up by it.
func (r Reference) Repository() string {
	if r.Domain == "" {
		return r.Path
	}
	return r.Domain + "/" + r.Path
}

// String returns the reference in full, with [DefaultTag] where it has neither tag nor digest.
func (r Reference) String() string { return r.Repository() + r.suffix() }

// Tagged returns the reference as it was given, with [DefaultTag] where it has neither tag nor digest. The registry is
// not filled in: what a short name means is for the runtime to say.
func (r Reference) Tagged() string { return r.Short + r.suffix() }

// Identity returns what the reference means to a runtime, in full: where there is a digest, the tag is for people.
func (r Reference) Identity() string {
	if r.Digest != "" {
		r.Tag = ""
	}
	return r.String()
}

// Identity returns what two names of one image have in common, such as "busybox" and "docker.io/library/busybox:latest". What
// is no reference, such as an ID, stays as it is.
func Identity(name string) string {
	ref, err := Parse(name)
	if err != nil {
		return name
	}
	return ref.Identity()
}

func (r Reference) suffix() string {
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

// IsLatest reports whether the name of an image, as it stands in a pod, has the tag [DefaultTag], said or meant. A name
// that cannot be parsed has none. Such an image is pulled Always where a pod says nothing of its pull policy.
// Source: SetDefaults_Container in pkg/apis/core/v1/defaults.go of Kubernetes.
func IsLatest(image string) bool {
	r, err := Parse(image)
	return err == nil && (r.Tag == DefaultTag || r.Tag == "" && r.Digest == "")
}

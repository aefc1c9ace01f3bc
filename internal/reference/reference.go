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

// Parts of short names: legacyDockerHub is the older name of [DockerHub]. defaultNamespace is the namespace of an image of
// DockerHub whose name has none.
const (
	legacyDockerHub  = "index.docker.io"
	defaultNamespace = "library/"
)

// maxPathLength is the maximum length of Reference.Path.
const maxPathLength = 255

// Reference is a parsed image name. Two names of the same image, for example "busybox" and "docker.io/library/busybox:latest",
// differ only in Short and Tag.
type Reference struct {
	Short  string // name as the user wrote it, without tag and digest: "busybox"
	Domain string // registry: "docker.io"; empty for names whose first part is no valid registry
	Path   string // repository in the registry: "library/busybox"
	Tag    string // empty: no tag
	Digest string // for example "sha256:" and 64 digits; empty: no digest
}

// Repository returns the registry and the path, for example "docker.io/library/busybox". Credentials are stored under this
// name.
func (r Reference) Repository() string {
	if r.Domain == "" {
		return r.Path
	}
	return r.Domain + "/" + r.Path
}

// String returns the reference with its registry, and with [DefaultTag] if it has no tag and no digest.
func (r Reference) String() string { return r.Repository() + r.tagAndDigest() }

// Tagged returns the reference as the user wrote it, with [DefaultTag] if it has no tag and no digest. It adds no registry,
// because the runtime decides which registry a short name refers to.
func (r Reference) Tagged() string { return r.Short + r.tagAndDigest() }

// Identity returns the reference with its registry. If the reference has a digest, Identity omits the tag, because runtimes
// ignore a tag beside a digest.
func (r Reference) Identity() string {
	if r.Digest != "" {
		r.Tag = ""
	}
	return r.String()
}

// Identity returns a string that is equal for all names of one image, such as "busybox" and
// "docker.io/library/busybox:latest". If name is not a valid reference, for example if it is an image ID, Identity returns
// it unchanged.
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

// IsLatest reports whether the image name of a container has the tag [DefaultTag], or neither tag nor digest: its default
// pull policy is Always. It is false for an invalid name. Source: SetDefaults_Container in pkg/apis/core/v1/defaults.go.
func IsLatest(image string) bool {
	r, err := Parse(image)
	return err == nil && (r.Tag == DefaultTag || r.Tag == "" && r.Digest == "")
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// Keeps a login of one registry from being sent to another: what stands before the first slash is a registry by the
// rules of github.com/distribution/reference, and Docker Hub is meant only where none stands there.
func TestLookupByRegistry(t *testing.T) {
	const hub = "https://index.docker.io/v1/"
	for _, tt := range []struct {
		name, image string
		keys, want  []string
	}{
		{"localhost is a registry", "localhost/app", []string{hub, "docker.io"}, nil},
		{"localhost has its own login", "localhost/app", []string{hub, "localhost"}, []string{"localhost"}},
		{"localhost with a port", "localhost:5000/app", []string{hub, "localhost"}, nil},
		{"localhost with its port", "localhost:5000/app", []string{hub, "localhost:5000"}, []string{"localhost:5000"}},
		{"a name that begins with localhost", "localhosts/app", []string{hub, "localhosts"}, []string{hub}},
		{"localhost alone is an image", "localhost", []string{hub, "localhost"}, []string{hub}},
		{"upper case is a registry", "Registry/app", []string{hub, "docker.io", "registry"}, nil},
		{"upper case has its own login", "Registry/app", []string{hub, "Registry"}, []string{"Registry"}},
		{"Docker Hub in upper case is not Docker Hub", "DOCKER.IO/app", []string{hub, "docker.io"}, nil},
		{"Localhost is not localhost", "Localhost/app", []string{hub, "localhost"}, nil},
		{"a port makes a registry", "registry:5000/app", []string{hub, "registry"}, nil},
		{"a dot makes a registry", "r.io/app", []string{hub, "docker.io"}, nil},
		{"a dot in an image alone does not", "r.io", []string{hub, "r.io"}, []string{hub}},
		{"no registry", "busybox", []string{hub, "busybox"}, []string{hub}},
		{"no registry but a namespace", "team/app", []string{hub, "team"}, []string{hub}},
		{"an underscore", "a_b/app", []string{hub, "a_b"}, []string{hub}},
		{"Docker Hub by name", "docker.io/app", []string{hub}, []string{hub}},
		{"Docker Hub by its older name", "index.docker.io/team/app", []string{hub}, []string{hub}},
		{"Docker Hub by its older name, keyed by the newer", "index.docker.io/team/app", []string{"docker.io"}, []string{"docker.io"}},
		{"the host that serves Docker Hub is a registry of its own", "registry-1.docker.io/library/app", []string{hub, "docker.io"}, nil},
		{"Docker Hub with a port is another registry", "docker.io:443/library/app", []string{hub, "docker.io"}, nil},
		{"a host that begins like Docker Hub", "docker.io.evil.io/app", []string{hub, "docker.io"}, nil},
		{"a host that ends like Docker Hub", "evil-docker.io/app", []string{hub, "docker.io"}, nil},
		{"IPv4", "10.0.0.1/app", []string{hub, "10.0.0.1"}, []string{"10.0.0.1"}},
		{"IPv6", "[fe80::1]/app", []string{hub, "[fe80::1]"}, []string{"[fe80::1]"}},
		{"IPv6 of another host", "[fe80::1]/app", []string{hub, "[fe80::2]"}, nil},
		{"IPv6 with a port", "[fe80::1]:5000/app", []string{hub, "[fe80::1]", "[fe80::1]:5000"}, []string{"[fe80::1]:5000"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, users(t, tt.image, tt.keys...), "as it stands in a pod")
			ref, err := reference.Parse(tt.image)
			require.NoError(t, err)
			assert.Equal(t, tt.want, users(t, ref.Repository(), tt.keys...), "in full")
		})
	}
}

// FuzzLookupHost: whatever stands in a secret and in a pod, a login under the name of one host is never offered to an
// image of another.
func FuzzLookupHost(f *testing.F) {
	for _, key := range []string{"https://index.docker.io/v1/", "docker.io", "r.io:5000/x", "localhost", "[::1]", "[::1]:5", "Registry/a"} {
		for _, image := range []string{
			"localhost/app", "busybox", "team/app:v1", "Registry/app", "index.docker.io/x", "docker.io/x", "r.io:5000/x/y",
			"[::1]/x", "[::1]:5/x", "r.io", "localhost:5000/x", "a_b.c/d",
		} {
			f.Add(key, image)
		}
	}
	f.Fuzz(func(t *testing.T, key, image string) {
		ref, err := reference.Parse(image)
		if err != nil || strings.ContainsAny(key, "*?\\@%") {
			return // no image, a wildcard, or a key that is written in a roundabout way
		}
		var ring credential.Keyring
		if ring.Add(credential.Config{key: {Username: "u"}}, credential.Source{}) != nil {
			return
		}
		bare := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		of := strings.TrimSuffix(bare[:strings.IndexAny(bare+"/", "/?#")], ":")
		if strings.Contains(of, "[") && !strings.HasPrefix(of, "[") {
			return // a class of characters
		}
		if of == "index.docker.io" {
			of = "docker.io"
		}
		registry, _, _ := strings.Cut(ref.Repository(), "/")
		for _, name := range []string{image, ref.Repository()} {
			if name, _, _ = strings.Cut(name, "@"); len(ring.Lookup(name)) > 0 {
				require.Equal(t, registry, of, "the login of %q was offered to %q", key, name)
			}
		}
	})
}

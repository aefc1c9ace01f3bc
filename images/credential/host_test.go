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

// A login for one registry is never sent to another. The part of the image name before the first slash is the registry, by
// the rules of github.com/distribution/reference. Docker Hub is the registry only of names without one.
func TestLookupByRegistry(t *testing.T) {
	const hub = "https://index.docker.io/v1/"
	for _, tt := range []struct {
		name, image string
		keys, want  []string
	}{
		{"localhost without login", "localhost/app", []string{hub, "docker.io"}, nil},
		{"localhost with login", "localhost/app", []string{hub, "localhost"}, []string{"localhost"}},
		{"localhost with port and login without port", "localhost:5000/app", []string{hub, "localhost"}, nil},
		{"localhost with port and its login", "localhost:5000/app", []string{hub, "localhost:5000"}, []string{"localhost:5000"}},
		{"namespace that begins with localhost", "localhosts/app", []string{hub, "localhosts"}, []string{hub}},
		{"image named localhost", "localhost", []string{hub, "localhost"}, []string{hub}},
		{"upper case registry without login", "Registry/app", []string{hub, "docker.io", "registry"}, nil},
		{"upper case registry with login", "Registry/app", []string{hub, "Registry"}, []string{"Registry"}},
		{"upper case docker.io is not Docker Hub", "DOCKER.IO/app", []string{hub, "docker.io"}, nil},
		{"upper case Localhost is not localhost", "Localhost/app", []string{hub, "localhost"}, nil},
		{"registry with port and login without port", "registry:5000/app", []string{hub, "registry"}, nil},
		{"registry with dot and without login", "r.io/app", []string{hub, "docker.io"}, nil},
		{"image with dot and without registry", "r.io", []string{hub, "r.io"}, []string{hub}},
		{"no registry", "busybox", []string{hub, "busybox"}, []string{hub}},
		{"namespace without registry", "team/app", []string{hub, "team"}, []string{hub}},
		{"namespace with underscore", "a_b/app", []string{hub, "a_b"}, []string{hub}},
		{"Docker Hub by docker.io", "docker.io/app", []string{hub}, []string{hub}},
		{"Docker Hub by index.docker.io", "index.docker.io/team/app", []string{hub}, []string{hub}},
		{"Docker Hub by index.docker.io with login for docker.io", "index.docker.io/team/app", []string{"docker.io"}, []string{"docker.io"}},
		{"registry-1.docker.io is not Docker Hub", "registry-1.docker.io/library/app", []string{hub, "docker.io"}, nil},
		{"Docker Hub with port is another registry", "docker.io:443/library/app", []string{hub, "docker.io"}, nil},
		{"host that begins with docker.io", "docker.io.evil.io/app", []string{hub, "docker.io"}, nil},
		{"host that ends with docker.io", "evil-docker.io/app", []string{hub, "docker.io"}, nil},
		{"IPv4", "10.0.0.1/app", []string{hub, "10.0.0.1"}, []string{"10.0.0.1"}},
		{"IPv6", "[fe80::1]/app", []string{hub, "[fe80::1]"}, []string{"[fe80::1]"}},
		{"IPv6 without login", "[fe80::1]/app", []string{hub, "[fe80::2]"}, nil},
		{"IPv6 with port and its login", "[fe80::1]:5000/app", []string{hub, "[fe80::1]", "[fe80::1]:5000"}, []string{"[fe80::1]:5000"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, lookupUsers(t, tt.image, tt.keys...), "name as in the pod")
			ref, err := reference.Parse(tt.image)
			require.NoError(t, err)
			assert.Equal(t, tt.want, lookupUsers(t, ref.Repository(), tt.keys...), "full name")
		})
	}
}

// FuzzLookupHost checks for any secret and image name that the login for one host is never offered to an image of another
// host.
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
			return // not an image, a wildcard, or an escaped key
		}
		var ring credential.Keyring
		if ring.Add(credential.Config{key: {Username: "u"}}, credential.Source{}) != nil {
			return
		}
		bare := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		of := strings.TrimSuffix(bare[:strings.IndexAny(bare+"/", "/?#")], ":")
		if strings.Contains(of, "[") && !strings.HasPrefix(of, "[") {
			return // a glob with a character class
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

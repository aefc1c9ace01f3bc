// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/util/parsers"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/reference"
)

func TestKeyring(t *testing.T) { run(t, keyring) }
func FuzzKeyring(f *testing.F) { fuzz(f, keyring) }

// keyringInput has an image and the keys of a docker configuration.
type keyringInput struct {
	Image string
	Keys  []string
}

// registryHost returns the part of an image name before the first slash.
func registryHost(c *conformance.Choices) string {
	host := conformance.Pick(c, "r.io", "docker.io", "index.docker.io", "registry-1.docker.io", "localhost", "Localhost", "registry",
		"Registry", "DOCKER.IO", "10.0.0.1", "[::1]", "[fe80::1]", "a.r.io", "b.a.r.io", "a_b", "a_b.c", "team", "docker.io.r.io")
	if c.OneIn(4) {
		host += conformance.Pick(c, ":5000", ":443", ":1")
	}
	return host
}

func makeKeyringInput(c *conformance.Choices) (l keyringInput) {
	l.Image = conformance.Pick(c, "x", "team/x", "team/a/x", "library/x", "X", "team")
	if !c.OneIn(6) {
		l.Image = registryHost(c) + "/" + l.Image
	}
	l.Image += conformance.Pick(c, "", ":v1", "@sha256:"+strings.Repeat("0123456789abcdef", 4))
	for range c.Int(5) {
		key := conformance.Pick(c, "", "", "https://", "http://") + registryHost(c)
		if c.OneIn(6) {
			key = conformance.Pick(c, "*", "*.io", "*.r.io", "*.*.io", "r.*", "*.io:5000", "r?io", "docker.*", "x", "team/x")
		}
		key += conformance.Pick(c, "", "", "/", "/v1/", "/v2/", "/v1", "/team", "/te", "/library/x", "/v2/team")
		if !slices.Contains(l.Keys, key) {
			l.Keys = append(l.Keys, key)
		}
	}
	return l
}

// triedUsers has the users whose logins are tried for an image, or reports that the image name is invalid. It is sorted,
// because the kubelet tries equivalent keys in random order.
type triedUsers struct {
	Invalid bool
	Users   []string
}

var keyring = conformance.Comparison[keyringInput, triedUsers]{
	Make: makeKeyringInput,
	Kubelet: func(l keyringInput) (s triedUsers) {
		repository, _, _, err := parsers.ParseImageName(l.Image)
		if err != nil {
			return triedUsers{Invalid: true}
		}
		config := credentialprovider.DockerConfig{}
		for _, key := range l.Keys {
			config[key] = credentialprovider.DockerConfigEntry{Username: key}
		}
		ring := &credentialprovider.BasicDockerKeyring{}
		ring.Add(nil, config)
		found, _ := ring.Lookup(repository)
		for _, c := range found {
			s.Users = append(s.Users, c.Username)
		}
		slices.Sort(s.Users)
		return s
	},
	Ours: func(l keyringInput) (s triedUsers) {
		ref, err := reference.Parse(l.Image)
		if err != nil {
			return triedUsers{Invalid: true}
		}
		config := credential.Config{}
		for _, key := range l.Keys {
			config[key] = credential.Login{Username: key}
		}
		var ring credential.Keyring
		_ = ring.Add(config, credential.Source{}) // the kubelet ignores invalid keys, too
		for _, c := range ring.Lookup(ref.Repository()) {
			s.Users = append(s.Users, c.Username)
		}
		slices.Sort(s.Users)
		return s
	},
	Exceptions: []conformance.Exception[keyringInput, triedUsers]{
		{
			Name:   "a registry without a dot or a port",
			Reason: "the kubelet treats localhost and upper-case names as repositories of Docker Hub, and sends its login to them",
			When: func(l keyringInput) bool {
				first, _, found := strings.Cut(l.Image, "/")
				return found && !strings.ContainsAny(first, ".:") && (first == "localhost" || strings.ToLower(first) != first)
			},
			Want: func(_ keyringInput, kubelet triedUsers) triedUsers {
				hub := func(key string) bool { return strings.Contains(key, "index.docker.io") }
				kubelet.Users = slices.DeleteFunc(kubelet.Users, hub)
				if len(kubelet.Users) == 0 {
					kubelet.Users = nil
				}
				return kubelet
			},
		},
		{
			Name:   "an IPv6 address without a port",
			Reason: "the kubelet interprets the brackets as a character class, and never finds the credentials",
			When: func(l keyringInput) bool {
				first, _, found := strings.Cut(l.Image, "/")
				return found && strings.HasSuffix(first, "]")
			},
			Want: func(l keyringInput, kubelet triedUsers) triedUsers {
				first, rest, _ := strings.Cut(l.Image, "/")
				for _, key := range l.Keys {
					_, bare, found := strings.Cut(key, "://")
					if !found {
						bare = key
					}
					host, path, _ := strings.Cut(bare, "/")
					for _, version := range []string{"v1/", "v2/"} {
						path = strings.TrimPrefix(path, version)
					}
					if host == first && strings.HasPrefix(rest, path) {
						kubelet.Users = append(kubelet.Users, key)
					}
				}
				slices.Sort(kubelet.Users)
				return kubelet
			},
		},
	},
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"net"
	"net/url"
	"path"
	"strings"

	"github.com/seed81659283/nodeagent/internal/reference"
)

// pattern is a registry, with a port or without, and the beginning of a path in it. Labels of the host may have the
// wildcards of [path.Match]; each stands for one label.
type pattern struct {
	labels []string
	port   string
	path   string
}

// parsePattern reads "host:port/path" without a scheme.
func parsePattern(s string) (pattern, error) {
	u, err := url.Parse("https://" + s)
	if err != nil {
		// What url.Parse says holds the text; what is in the userinfo of it may be a secret.
		return pattern{}, errPattern
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		host, port = u.Host, "" // there is none
		if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") && strings.Contains(host, ":") {
			host = host[1 : len(host)-1] // an IPv6 address, which path.Match would take for a class of characters
		}
	}
	return pattern{labels: strings.Split(host, "."), port: port, path: u.Path}, nil
}

// parseTarget reads a repository and returns it with its registry, which is filled in where the repository names none.
func parseTarget(repository string) (target pattern, registry string, err error) {
	registry, rest := reference.Split(repository)
	target, err = parsePattern(registry + "/" + rest)
	return target, registry, err
}

// matches reports whether the pattern stands for a target. The port has to be the same, the host label by label, and
// the path has to begin with that of the pattern, in characters: "r.io/team" is also for "r.io/teams".
func (p pattern) matches(target pattern) bool {
	if p.port != target.port || len(p.labels) != len(target.labels) || !strings.HasPrefix(target.path, p.path) {
		return false
	}
	for i, label := range p.labels {
		if ok, err := path.Match(label, target.labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// patternKey returns the key of a docker configuration as a pattern is written: without a scheme, and without the
// version of the registry's API.
func patternKey(key string) (string, error) {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	u, err := url.Parse("https://" + key)
	if err != nil {
		return "", errPattern
	}
	p := u.Path
	if strings.HasPrefix(p, "/v1/") || strings.HasPrefix(p, "/v2/") {
		p = p[len("/v1"):]
	}
	if p == "/" {
		p = ""
	}
	return u.Host + p, nil
}

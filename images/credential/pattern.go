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

// registryPattern matches repositories: a registry with optional port, and a path prefix. Labels of the host may contain
// wildcards of [path.Match]; a wildcard matches within one label.
type registryPattern struct {
	labels     []string
	port       string
	pathPrefix string
}

// parsePattern parses a pattern of the form HOST[:PORT][/PATH]. Errors do not quote the pattern, because it may contain a
// password.
func parsePattern(s string) (registryPattern, error) {
	u, err := url.Parse("https://" + s)
	if err != nil {
		// The error of url.Parse quotes the text, whose userinfo may contain a password.
		return registryPattern{}, errInvalidPattern
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		host, port = u.Host, "" // no port
		if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") && strings.Contains(host, ":") {
			host = host[1 : len(host)-1] // an IPv6 address; path.Match would treat the brackets as a character class
		}
	}
	return registryPattern{labels: strings.Split(host, "."), port: port, pathPrefix: u.Path}, nil
}

// parseTarget parses the name of a repository for [registryPattern.matchesTarget]. It also returns the registry of the
// repository.
func parseTarget(repository string) (target registryPattern, registry string, err error) {
	registry, rest := reference.Split(repository)
	target, err = parsePattern(registry + "/" + rest)
	return target, registry, err
}

// matchesTarget reports whether the pattern p matches a repository: equal port, matching host labels, and p's path as a
// prefix.
func (p registryPattern) matchesTarget(target registryPattern) bool {
	if p.port != target.port || len(p.labels) != len(target.labels) || !strings.HasPrefix(target.pathPrefix, p.pathPrefix) {
		return false
	}
	for i, label := range p.labels {
		if ok, err := path.Match(label, target.labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// normalizeKey returns the host and path in key, which is a key of a docker configuration. It removes the scheme and the
// API version, such as "/v1".
func normalizeKey(key string) (string, error) {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	u, err := url.Parse("https://" + key)
	if err != nil {
		return "", errInvalidPattern
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

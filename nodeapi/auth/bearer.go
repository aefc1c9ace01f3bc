// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	protocolHeader = "Sec-Websocket-Protocol" // in the canonical form of net/http
	protocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// bearerToken returns the bearer token in the Authorization header, or an empty string. Source: bearertoken.go in
// k8s.io/apiserver/pkg/authentication/request/bearertoken.
func bearerToken(header http.Header) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	token, _, _ := strings.Cut(rest, " ")
	return token
}

// protocolToken returns the bearer token in the Sec-WebSocket-Protocol header, in which browsers send it as a subprotocol. It
// returns "" if there is no token. Source: protocol.go in k8s.io/apiserver/pkg/authentication/request/websocket.
func protocolToken(header http.Header) (token string, err error) {
	if !isWebSocket(header) {
		return "", nil
	}
	seen, others := false, false
	for _, line := range header[protocolHeader] {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.TrimSpace(name)
			encoded, found := strings.CutPrefix(name, protocolPrefix)
			if !found {
				others = true
				continue
			}
			if seen {
				return "", errors.New("more than one bearer token among the WebSocket subprotocols")
			}
			seen = true
			raw, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || !utf8.Valid(raw) {
				return "", errors.New("the bearer token among the WebSocket subprotocols is not base64url of UTF-8")
			}
			token = string(raw)
		}
	}
	if token != "" && !others {
		return "", errors.New("a bearer token is the only WebSocket subprotocol, so that none is left to speak")
	}
	return token, nil
}

// isWebSocket reports whether header requests an upgrade to a WebSocket.
func isWebSocket(header http.Header) bool {
	if !strings.EqualFold(header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, line := range header["Connection"] {
		if strings.Contains(strings.ToLower(line), "upgrade") {
			return true
		}
	}
	return false
}

// removeCredentials removes the Authorization header and the bearer tokens among the WebSocket subprotocols. Handlers and
// container runtimes then never receive them.
func removeCredentials(header http.Header) {
	header.Del("Authorization")
	lines := header[protocolHeader]
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, protocolPrefix) }) {
		return
	}
	var others []string
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); !strings.HasPrefix(name, protocolPrefix) {
				others = append(others, name)
			}
		}
	}
	header.Del(protocolHeader)
	if len(others) > 0 {
		header.Set(protocolHeader, strings.Join(others, ","))
	}
}

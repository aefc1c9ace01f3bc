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
	protocolHeader = "Sec-Websocket-Protocol" // in the form that net/http gives it
	protocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// bearer returns the token of the header Authorization; empty: there is none. Source: bearertoken.go in
// k8s.io/apiserver/pkg/authentication/request/bearertoken.
func bearer(h http.Header) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	token, _, _ := strings.Cut(rest, " ")
	return token
}

// protocolBearer returns the token that a browser sends as a WebSocket subprotocol, because it cannot send headers; empty: there is
// none. Source: protocol.go in k8s.io/apiserver/pkg/authentication/request/websocket.
func protocolBearer(h http.Header) (token string, err error) {
	if !isWebSocket(h) {
		return "", nil
	}
	seen, others := false, false
	for _, line := range h[protocolHeader] {
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

// isWebSocket reports whether headers ask for a WebSocket.
func isWebSocket(h http.Header) bool {
	if !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		return false
	}
	for _, line := range h["Connection"] {
		if strings.Contains(strings.ToLower(line), "upgrade") {
			return true
		}
	}
	return false
}

// conceal takes the credentials out of a request, so that nobody behind this package gets them, a runtime that it is proxied to least of
// all: those that count, and those that do not.
func conceal(h http.Header) {
	h.Del("Authorization")
	lines := h[protocolHeader]
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
	h.Del(protocolHeader)
	if len(others) > 0 {
		h.Set(protocolHeader, strings.Join(others, ","))
	}
}

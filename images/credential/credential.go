// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"

	"github.com/seed81659283/nodeagent/cri"
)

// Credential is what to show to a registry.
type Credential struct {
	Username string
	Password string `json:"-"`
	Email    string
	Source   Source
}

// Kind is what kind of thing a credential comes from.
type Kind uint8

// The kinds of sources.
const (
	FromNode           Kind = iota // for every pod of the node
	FromSecret                     // a pull secret
	FromServiceAccount             // a plugin that was handed a token of the service account
)

// Source is where a credential comes from. The zero value is the node.
type Source struct {
	Kind   Kind
	Object Object // the secret or the service account
}

// Object names an object of the API.
type Object struct {
	UID, Namespace, Name string
}

// Auth returns the credential as package cri hands it to a runtime.
func (c Credential) Auth() *cri.Auth { return &cri.Auth{Username: c.Username, Password: c.Password} }

// Hash returns the SHA-256 of the credential, in hexadecimal digits, as the kubelet records it.
// Source: pkg/credentialprovider/keyring.go (hashAuthConfig).
func (c Credential) Hash() string {
	// The names, the order and the omissions are what is hashed.
	data, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}{c.Username, c.Password, c.Email})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// String names the user only.
func (c Credential) String() string { return "credential of " + c.Username }

// GoString is String, so that %#v hides the password too.
func (c Credential) GoString() string { return c.String() }

// LogValue is String.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Pod is the pod that a credential is wanted for.
type Pod struct {
	UID, Namespace, Name string
	ServiceAccount       string // its name
}

// Provider finds credentials of the node for a repository such as "docker.io/library/busybox", in the order in which
// they are to be tried. None is no error. Beside an error there may be credentials: those that were found in spite
// of it.
type Provider interface {
	Credentials(ctx context.Context, repository string, pod Pod) ([]Credential, error)
}

// ProviderFunc is a function that is a [Provider].
type ProviderFunc func(ctx context.Context, repository string, pod Pod) ([]Credential, error)

// Credentials calls f.
func (f ProviderFunc) Credentials(ctx context.Context, repository string, pod Pod) ([]Credential, error) {
	return f(ctx, repository, pod)
}

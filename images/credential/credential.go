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

// Credential is a user name and a password for a registry, with the source of both.
type Credential struct {
	Username string
	Password string `json:"-"`
	Email    string
	Source   Source
}

// Kind is the kind of source of a credential.
type Kind uint8

// The kinds of sources.
const (
	FromNode           Kind = iota // the node: for all of its pods
	FromSecret                     // a pull secret
	FromServiceAccount             // a plugin that got a token of the service account
)

// Source is the source of a credential. The zero value is the node.
type Source struct {
	Kind   Kind
	Object Object // the secret or service account
}

// Object identifies an API object.
type Object struct {
	UID, Namespace, Name string
}

// Auth returns the user name and the password in the form that PullImage expects.
func (c Credential) Auth() *cri.Auth { return &cri.Auth{Username: c.Username, Password: c.Password} }

// Hash returns the SHA-256 of the credential in hexadecimal digits. The kubelet writes this hash to its records of pulled
// images. Source: hashAuthConfig in pkg/credentialprovider/keyring.go.
func (c Credential) Hash() string {
	// The hash depends on the field names, their order and omitted fields.
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

// String returns the user name. It hides the password.
func (c Credential) String() string { return "credential of " + c.Username }

// GoString returns the same text as String, so that %#v does not print the password.
func (c Credential) GoString() string { return c.String() }

// LogValue returns the same text as String, so that logs do not contain the password.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Pod identifies the pod for which a credential is requested.
type Pod struct {
	UID, Namespace, Name string
	ServiceAccount       string // name of its service account
}

// Provider returns the node's credentials for a repository such as "docker.io/library/busybox", in the order in which they
// should be tried. No credentials are no error. With an error it may still return the credentials that it found.
type Provider interface {
	Credentials(ctx context.Context, repository string, pod Pod) ([]Credential, error)
}

// ProviderFunc implements [Provider] by a function.
type ProviderFunc func(ctx context.Context, repository string, pod Pod) ([]Credential, error)

// Credentials calls f.
func (f ProviderFunc) Credentials(ctx context.Context, repository string, pod Pod) ([]Credential, error) {
	return f(ctx, repository, pod)
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/volume"
)

// Tokens requests service account tokens from the API server. Each token is bound to a pod by name and UID, and becomes invalid
// when the pod is deleted. It implements volume.TokenIssuer without a cache. No error contains a token.
type Tokens struct{ client *kubeapi.Client }

var _ volume.TokenIssuer = Tokens{}

// Tokens returns a token issuer that uses the client of s.
func (s *Source) Tokens() Tokens { return Tokens{s.client} }

// Token requests a new token for the service account and the pod in the request. The token is bound to the pod. If
// ExpirationSeconds is zero, the token is valid for one hour.
func (t Tokens) Token(ctx context.Context, request volume.TokenRequest) (volume.Token, error) {
	if request.Pod == "" || request.PodUID == "" {
		return volume.Token{}, fmt.Errorf("token of service account %s/%s: the request names no pod and UID to bind it to", request.Namespace, request.ServiceAccount)
	}
	if request.ExpirationSeconds <= 0 {
		request.ExpirationSeconds = token.DefaultSeconds
	}
	tokenRequest := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &request.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: request.Pod, UID: types.UID(request.PodUID)},
	}}
	if request.Audience != "" {
		tokenRequest.Spec.Audiences = []string{request.Audience}
	}
	response, err := retryForbidden(ctx, func(ctx context.Context) (*authenticationv1.TokenRequest, error) {
		return kubeapi.CreateToken(ctx, t.client, request.Namespace, request.ServiceAccount, tokenRequest)
	})
	switch {
	case err != nil:
		return volume.Token{}, markUnavailable(err)
	case response.Status.Token == "" || response.Status.ExpirationTimestamp.IsZero():
		return volume.Token{}, fmt.Errorf("token of service account %s/%s: the response has no token, or no expiry", request.Namespace, request.ServiceAccount)
	}
	return volume.Token{Value: response.Status.Token, Expires: response.Status.ExpirationTimestamp.Time}, nil
}

// Accounts reads service accounts and requests tokens for credential provider plugins. It implements credential.Accounts.
type Accounts struct {
	client *kubeapi.Client
	tokens *token.Cache
}

var _ credential.Accounts = (*Accounts)(nil)

// Accounts returns an [Accounts], which reads service accounts and their tokens. It caches tokens.
func (t Tokens) Accounts() *Accounts { return &Accounts{t.client, token.NewCache(t, nil)} }

// ServiceAccount returns the UID and annotations of a service account of a pod of this node.
func (a *Accounts) ServiceAccount(ctx context.Context, namespace, name string) (credential.ServiceAccount, error) {
	o, err := readObject(ctx, a.client, kubeapi.ServiceAccounts, namespace, name)
	if err != nil {
		return credential.ServiceAccount{}, err
	}
	return credential.ServiceAccount{UID: string(o.UID), Annotations: o.Annotations}, nil
}

// Token returns a token for the service account and the pod in the request. The token is bound to the pod. It is cached, and
// replaced before it expires.
func (a *Accounts) Token(ctx context.Context, request credential.TokenRequest) (string, error) {
	if request.Account.Name == "" {
		return "", errors.New("token: the request names no service account")
	}
	return a.tokens.TokenText(ctx, volume.TokenRequest{
		Namespace: request.Account.Namespace, ServiceAccount: request.Account.Name, Audience: request.Audience, Pod: request.Pod.Name, PodUID: request.Pod.UID,
	})
}

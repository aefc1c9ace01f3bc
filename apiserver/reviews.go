// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// TokenReviews asks the API server which user a bearer token belongs to. Package nodeapi/auth takes it in place of the client of
// client-go. The zero value returns an error. Source: TokenReview in authentication.k8s.io/v1.
type TokenReviews struct{ client *kubeapi.Client }

// AccessReviews asks the API server whether a user may do an action. Package nodeapi/auth takes it in place of the client of
// client-go. The zero value returns an error. Source: SubjectAccessReview in authorization.k8s.io/v1.
type AccessReviews struct{ client *kubeapi.Client }

// Rate limit of each kind of review. It is separate from that of other requests, because unauthenticated clients can cause many
// token reviews.
const (
	reviewQPS   = 50
	reviewBurst = 100
)

// addReviewClients creates the clients for token reviews and access reviews. Each client has its own rate limit.
func (s *Source) addReviewClients() (err error) {
	if s.tokenReviews.client, err = s.client.WithBudget(reviewQPS, reviewBurst); err != nil {
		return err
	}
	s.accessReviews.client, err = s.client.WithBudget(reviewQPS, reviewBurst)
	return err
}

// TokenReviews returns a client that requests the user of a bearer token from the API server. It sends at most 50 requests a second.
func (s *Source) TokenReviews() TokenReviews { return s.tokenReviews }

// AccessReviews returns a client for access reviews, which report whether a user may do an action. It sends at most 50 requests a second.
func (s *Source) AccessReviews() AccessReviews { return s.accessReviews }

// Create sends the review, and returns the response of the API server, whose status contains the user of the token. The
// create options are ignored, because the API server does not store reviews.
func (r TokenReviews) Create(ctx context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if r.client == nil {
		return nil, errNoSource
	}
	return kubeapi.ReviewToken(ctx, r.client, review)
}

// Create sends the review, and returns the response of the API server, whose status contains the decision. The create
// options are ignored, because the API server does not store reviews.
func (r AccessReviews) Create(
	ctx context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	if r.client == nil {
		return nil, errNoSource
	}
	return kubeapi.ReviewAccess(ctx, r.client, review)
}

var errNoSource = errors.New("apiserver: reviews without a Source: want those of Source.TokenReviews and Source.AccessReviews")

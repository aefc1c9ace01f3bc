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

// TokenReviews asks the API server whose a bearer token is, as the typed client of client-go does: it is what package
// nodeapi/auth takes. The zero value is an error. Source: TokenReview in authentication.k8s.io/v1.
type TokenReviews struct{ client *kubeapi.Client }

// AccessReviews asks the API server what a user may do, likewise. Source: SubjectAccessReview in authorization.k8s.io/v1.
type AccessReviews struct{ client *kubeapi.Client }

// The budget of each kind of review. Strangers cause reviews of tokens, which must not use up the budget of anything else.
const (
	reviewQPS   = 50
	reviewBurst = 100
)

// newReviews makes both kinds of reviews, with budgets of their own.
func (s *Source) addReviewClients() (err error) {
	if s.tokenReviews.client, err = s.client.WithBudget(reviewQPS, reviewBurst); err != nil {
		return err
	}
	s.accessReviews.client, err = s.client.WithBudget(reviewQPS, reviewBurst)
	return err
}

// TokenReviews returns what asks the API server whose a token is, 50 times a second at most.
func (s *Source) TokenReviews() TokenReviews { return s.tokenReviews }

// AccessReviews returns what asks the API server what a user may do, 50 times a second at most.
func (s *Source) AccessReviews() AccessReviews { return s.accessReviews }

// Create asks. Options are not used: a review is not kept.
func (r TokenReviews) Create(ctx context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	if r.client == nil {
		return nil, errNoSource
	}
	return kubeapi.ReviewToken(ctx, r.client, review)
}

// Create asks. Options are not used: a review is not kept.
func (r AccessReviews) Create(
	ctx context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	if r.client == nil {
		return nil, errNoSource
	}
	return kubeapi.ReviewAccess(ctx, r.client, review)
}

var errNoSource = errors.New("apiserver: reviews without a Source: want those of Source.TokenReviews and Source.AccessReviews")

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Kinds of reviews. The API server does not store reviews.
var (
	tokenReviews = Kind[*authenticationv1.TokenReview]{ //nolint:gochecknoglobals // only read
		authenticationv1.SchemeGroupVersion, "TokenReview", "tokenreviews", false, true,
		func() *authenticationv1.TokenReview { return &authenticationv1.TokenReview{} }, nil,
	}
	accessReviews = Kind[*authorizationv1.SubjectAccessReview]{ //nolint:gochecknoglobals // only read
		authorizationv1.SchemeGroupVersion, "SubjectAccessReview", "subjectaccessreviews", false, false,
		func() *authorizationv1.SubjectAccessReview { return &authorizationv1.SubjectAccessReview{} }, nil,
	}
)

// ReviewToken asks the API server which user the token in review belongs to. The user is in the status of the result. Errors
// never contain the token.
func ReviewToken(ctx context.Context, client *Client, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	answer := &authenticationv1.TokenReview{}
	return answer, sendReview(ctx, In(client, tokenReviews, ""), review, answer)
}

// ReviewAccess asks the API server whether the user in review may perform an action. The decision is in the status of the
// result.
func ReviewAccess(ctx context.Context, client *Client, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	answer := &authorizationv1.SubjectAccessReview{}
	return answer, sendReview(ctx, In(client, accessReviews, ""), review, answer)
}

// sendReview sends review to the API server in a POST request, and decodes the response.
func sendReview[T Object](ctx context.Context, resource Resource[T], review, response runtime.Object) error {
	return resource.doRequest(ctx, "create", "", response, func(c *rest.RESTClient) *rest.Request { return c.Post().Body(review) })
}

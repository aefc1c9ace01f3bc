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

// Reviews are questions: the API server answers them and keeps nothing.
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

// ReviewToken asks whose token it is. An error never shows the token.
func ReviewToken(ctx context.Context, c *Client, review *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	answer := &authenticationv1.TokenReview{}
	return answer, sendReview(ctx, In(c, tokenReviews, ""), review, answer)
}

// ReviewAccess asks whether a user may do something.
func ReviewAccess(ctx context.Context, c *Client, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	answer := &authorizationv1.SubjectAccessReview{}
	return answer, sendReview(ctx, In(c, accessReviews, ""), review, answer)
}

// ask sends a question. Its answer has no name.
func sendReview[T Object](ctx context.Context, r Resource[T], question, answer runtime.Object) error {
	return r.doRequest(ctx, "create", "", answer, func(c *rest.RESTClient) *rest.Request { return c.Post().Body(question) })
}

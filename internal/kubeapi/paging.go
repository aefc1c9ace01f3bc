// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// paging decides how many objects the pages of a list have, so that a page fits in its limit, [MaxList], whatever size its objects have.
type paging struct {
	limit int64 // objects of the next page; zero: none was asked for yet
}

// size returns how many objects the next page may have.
func (p *paging) nextSize() int64 {
	if p.limit == 0 {
		p.limit = pageSize
	}
	return p.limit
}

// halve makes pages smaller after one that was too large, and reports whether it can.
func (p *paging) halveSize() bool {
	if p.nextSize() == 1 {
		return false
	}
	p.limit /= 2
	return true
}

// grow makes pages larger again after one of at most a quarter of its limit.
func (p *paging) growSize(bytes, limit int64) {
	if bytes <= limit/4 {
		p.limit = min(2*p.nextSize(), pageSize)
	}
}

// metadata reads a page of one object without its spec and status, for one that is too large to be read.
func (r Resource[T]) listMetadata(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	err := r.client.doWithRetry(ctx, func(ctx context.Context) error {
		request := r.setPath(r.client.rest[r.kind.gv].Get().VersionedParams(&o, r.client.params), "", nil).MaxRetries(0)
		body, err := request.SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
		if err == nil && json.Unmarshal(body, list) != nil {
			err = errUndecodable
		}
		return sanitizeError(err, ctx.Err(), r.kind.secret)
	})
	if err == nil && (list.Kind != "PartialObjectMetadataList" || list.ResourceVersion == "" || len(list.Items) > 1) {
		err = errUndecodable
	}
	return list, r.wrapError("list", "", err)
}

// nextPage reads the next page of a list. One that is too large is asked for again with half of the objects, at last with one.
// An object that is too large by itself is passed over and reported, and what the table has of it stays.
func (r *reflection[T, V]) nextPage(ctx context.Context, o *metav1.ListOptions) (Page[T], rows[V], error) {
	for {
		page, err := r.table.resource.List(ctx, *o)
		switch {
		case err == nil:
			if o.Limit > 0 {
				r.paging.growSize(page.Size, r.table.resource.client.maxList)
			}
			return page, nil, nil
		case !isTooLarge(err):
			return page, nil, err
		case o.Limit == 0: // all of a version: pages are of the newest
			o.ResourceVersion = ""
		case !r.paging.halveSize():
			return r.skipOversized(ctx, *o, err)
		}
		o.Limit = r.paging.nextSize()
	}
}

// passOver returns a page without the one object of it, which is too large, and the row that the table has of that object.
func (r *reflection[T, V]) skipOversized(ctx context.Context, o metav1.ListOptions, cause error) (Page[T], rows[V], error) {
	list, err := r.table.resource.listMetadata(ctx, o)
	if err != nil {
		return Page[T]{}, nil, fmt.Errorf("%w; its name: %w", cause, err)
	}
	page := Page[T]{ResourceVersion: list.ResourceVersion, Continue: list.Continue}
	var kept rows[V]
	for i := range list.Items {
		key := Key(list.Items[i].Namespace, list.Items[i].Name)
		if row, was := r.table.getRow(key); was {
			kept = append(kept, row)
		}
		r.table.recordFailure(&Error{Verb: "list", Resource: r.table.resource.kind.resource, Name: key, Err: fmt.Errorf(
			"%w: more than %d bytes: it is passed over", ErrTooLarge, r.table.resource.client.maxList)})
	}
	return page, kept, nil
}

// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// How much one pod can make a log or an event say.
const (
	maxErrors = 100
	maxQuoted = 256  // bytes of a value that is quoted
	maxText   = 1024 // bytes of the name of a field, which may have the key of a map in it, or of a detail
)

// concise returns the first errors of a list, with what they quote cut to a size that can be read. The errors of the
// list are changed.
func concise(errs field.ErrorList) field.ErrorList {
	if len(errs) > maxErrors {
		rest := field.Forbidden(field.NewPath(""), fmt.Sprintf("more than %d errors, of which the first are told", maxErrors))
		rest.Field = "pod"
		errs = append(errs[:maxErrors:maxErrors], rest)
	}
	for _, err := range errs {
		shorten(err)
	}
	return errs
}

// conciseError is concise for an error that may be a *field.Error.
func conciseError(err error) error {
	if one, ok := err.(*field.Error); ok { //nolint:errorlint // one that is wrapped belongs to somebody else
		shorten(one)
	}
	return err
}

func shorten(err *field.Error) {
	err.Field, err.Detail = cut(err.Field, maxText), cut(err.Detail, maxText)
	if err.BadValue == nil {
		return
	}
	switch v := reflect.ValueOf(err.BadValue); v.Kind() {
	case reflect.String:
		if v.Len() > maxQuoted {
			err.BadValue = cut(v.String(), maxQuoted)
		}
	case reflect.Slice:
		size := 0
		for i := range v.Len() {
			if size++; v.Index(i).Kind() == reflect.String {
				size += v.Index(i).Len()
			}
		}
		if size > maxQuoted {
			err.BadValue = fmt.Sprintf("a list of %d", v.Len())
		}
	}
}

// cut returns a text of at most about that many bytes: its beginning and its length.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "... (" + strconv.Itoa(len(s)) + " bytes)"
}

// quote returns a name for the text of an error.
func quote(name string) string { return strconv.Quote(cut(name, maxQuoted)) }

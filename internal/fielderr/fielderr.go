// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package fielderr shortens the errors of a pod's fields, so that they fit in a log or an event regardless of the content of the
// field. It does not validate fields.
package fielderr

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the errors of one pod, so that they fit in a log or an event.
const (
	// MaxErrors is the number of errors that [Short] returns, in addition to an error about the remaining ones.
	MaxErrors = 100

	maxQuoted = 256  // bytes of a quoted value
	maxText   = 1024 // bytes of a field name, which may contain the key of a map, or of a detail
)

// Short returns the first MaxErrors errors of errs, and if there are more, an error that states this. It shortens long texts
// and values in place. Call it only once per list.
func Short(errs field.ErrorList) field.ErrorList {
	if len(errs) > MaxErrors {
		rest := field.Forbidden(field.NewPath(""), fmt.Sprintf("more than %d errors, of which the first are reported", MaxErrors))
		rest.Field = "pod"
		errs = append(errs[:MaxErrors:MaxErrors], rest)
	}
	for _, err := range errs {
		shortenError(err)
	}
	return errs
}

// ShortOne shortens err like [Short] if its type is *field.Error. It returns every other error unchanged, even an error that
// wraps a *field.Error.
func ShortOne(err error) error {
	if one, ok := err.(*field.Error); ok { //nolint:errorlint // a wrapped error must not be written to
		shortenError(one)
	}
	return err
}

// shortenError shortens the field path, the detail and the value of err in place.
func shortenError(err *field.Error) {
	err.Field, err.Detail = truncate(err.Field, maxText), truncate(err.Detail, maxText)
	if err.BadValue == nil {
		return
	}
	switch v := reflect.ValueOf(err.BadValue); v.Kind() {
	case reflect.String:
		if v.Len() > maxQuoted {
			err.BadValue = truncate(v.String(), maxQuoted)
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

// truncate returns text if it has at most limit bytes. Otherwise it returns the first limit bytes, followed by the number of
// bytes of text.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "... (" + strconv.Itoa(len(text)) + " bytes)"
}

// Quote returns name in quotes for an error message. It truncates a long name.
func Quote(name string) string { return strconv.Quote(truncate(name, maxQuoted)) }

// TooLong returns an error that the field at path is too long. The detail of the error is format with args. The value of
// the field is not included.
func TooLong(path *field.Path, format string, args ...any) *field.Error {
	err := field.TooLong(path, nil, 0)
	err.Detail = fmt.Sprintf(format, args...)
	return err
}

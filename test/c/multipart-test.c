/* multipart-test.c - forms with parts: each fed whole, byte by byte, and cut at every place.
 *
 * SPDX-License-Identifier: GPL-3.0-or-later */

#include "multipart-outcome.h"

#include "limits.h"

#include <time.h>

static int passed, failed;

#define FORM "multipart/form-data; boundary=fence7"
#define FIELD(name) "--fence7\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n"
#define HEAD(disposition) "--fence7\r\nContent-Disposition: form-data; " disposition "\r\n\r\n"
#define END "\r\n--fence7--\r\n"

/* With string literals concatenated, "\xe4" "b" needs the break. */
static const struct {
    const char *type;
    const char *body;
    const char *outcome; /* a refusal: only the status counts */
} forms[] = {
    {FORM, FIELD("a") "1" END, "[a|-|-]1;=0"},
    {FORM, FIELD("a") "1\r\n" FIELD("a") "2" END, "[a|-|-]1;[a|-|-]2;=0"},
    {FORM, FIELD("a") END, "[a|-|-];=0"},
    /* No content and no line end of its own. */
    {FORM, FIELD("a") "--fence7--", "[a|-|-];=0"},
    {FORM, "--fence7--", "=0"},
    {FORM, "--fence7--\r\n", "=0"},
    {FORM, "preamble\r\n" FIELD("a") "1" END "epilogue\r\n" FIELD("b") "2" END, "[a|-|-]1;=0"},
    {FORM, "--fence\r\n--fence7x\r\n" FIELD("a") "1" END, "[a|-|-]1;=0"},
    {FORM, FIELD("a") "\r\n\r\n1\r\n\r\n" END, "[a|-|-]\r\n\r\n1\r\n\r\n;=0"},
    {FORM, FIELD("a") "\r\r\n-\r\n--\r\n--fence\r\r\n--fence" END,
     "[a|-|-]\r\r\n-\r\n--\r\n--fence\r\r\n--fence;=0"},
    {FORM, FIELD("a") "x--fence7--\n--fence7--" END, "[a|-|-]x--fence7--\n--fence7--;=0"},
    /* What only begins like a delimiter is content. */
    {FORM, FIELD("a") "1\r\n--fence77\r\n2\r\n--fence7-\r\n--fence7\r\r\n--fence7\r\n--" END,
     "=400"},
    {FORM, FIELD("a") "1\r\n--fence77\r\n2\r\n--fence7-x\r\n--fence7\r" END,
     "[a|-|-]1\r\n--fence77\r\n2\r\n--fence7-x\r\n--fence7\r;=0"},
    {FORM, FIELD("a") "1\r\n--fence7\r\r\n--fence7--", "[a|-|-]1\r\n--fence7\r;=0"},
    {FORM, FIELD("a") "1\r\n--fence7 \t \r\nContent-Disposition:form-data;name=b\r\n\r\n2" END,
     "[a|-|-]1;[b|-|-]2;=0"},
    {FORM, FIELD("a") "1\r\n--fence7 x\r\n", "=400"},
    {FORM, FIELD("a") "1\r\n--fence7 \rx\r\n", "=400"},
    /* Unfinished. */
    {FORM, "", "=400"},
    {FORM, "nothing", "=400"},
    {FORM, FIELD("a") "1", "=400"},
    {FORM, FIELD("a") "1\r\n--fence7", "=400"},
    {FORM, FIELD("a") "1\r\n--fence7-", "=400"},
    {FORM, FIELD("a") "1\r\n--fence7\r\n", "=400"},
    {FORM, FIELD("a") "1\n--fence7--\n", "=400"},
    /* Heads. */
    {FORM, HEAD("name=\"f\"; filename=\"x.txt\"") "1" END, "[f|x.txt|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename=\"\"") END, "[f||-];=0"},
    {FORM, HEAD("name=f;filename=x.txt ") "1" END, "[f|x.txt|-]1;=0"},
    {FORM, HEAD("filename=\"a;b=c\"; name=\"f\"") "1" END, "[f|a;b=c|-]1;=0"},
    {FORM, HEAD("name=\"a\\\"b\"; filename=\"\\\\x\\\"\"") "1" END, "[a\"b|\\x\"|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename=\"C:\\dir\\x.txt\"") "1" END, "[f|C:\\dir\\x.txt|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename=\"%22\"") "1" END, "[f|%22|-]1;=0"},
    {FORM, HEAD("name=\"\xe5\x90\x8d\"; filename=\"\xe5\x90\x8d.txt\"") "1" END,
     "[\xe5\x90\x8d|\xe5\x90\x8d.txt|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename=\"x\"; filename*=UTF-8''%e5%90%8d.txt") "1" END,
     "[f|\xe5\x90\x8d.txt|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename*=iso-8859-1'en'%e4") "1" END, "[f|\xc3\xa4|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename=\"x\"; filename*=UTF-8''%ff") "1" END, "[f|x|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename=\"x\"; filename*=koi8-r''%c1") "1" END, "[f|x|-]1;=0"},
    {FORM, HEAD("name=\"f\"; filename=\"x\"; filename*=UTF-8''a%0d%0ab") "1" END, "[f|x|-]1;=0"},
    {FORM, HEAD("name=\"f\"; name=\"g\"") "1" END, "[f|-|-]1;=0"},
    {FORM, HEAD("name=\"\"") "1" END, "[|-|-]1;=0"},
    {FORM, HEAD("name=\"f") "1" END, "=400"},
    {FORM, HEAD("name=\"f\"x") "1" END, "=400"},
    {FORM, HEAD("filename=\"x\"") "1" END, "=400"},
    {FORM, "--fence7\r\n\r\n1" END, "=400"},
    {FORM, "--fence7\r\nContent-Type: text/plain\r\n\r\n1" END, "=400"},
    {FORM, "--fence7\r\nContent-Disposition: attachment; name=\"a\"\r\n\r\n1" END, "=400"},
    {FORM, "--fence7\r\nContent-Disposition form-data\r\n\r\n1" END, "=400"},
    {FORM, "--fence7\nContent-Disposition: form-data; name=\"a\"\n\n1\n--fence7--\n", "=400"},
    {FORM, "--fence7\r\nContent-Disposition: form-data; name=\"a\"\n\r\n1" END, "=400"},
    {FORM, "--fence7\r\nContent-Disposition: form-data; name=\"a\rb\"\r\n\r\n1" END, "=400"},
    {FORM, "--fence7\r\nContent-Disposition: form-data; name=\"a\x01\"\r\n\r\n1" END, "=400"},
    {FORM,
     "--fence7\r\ncontent-type: text/plain; charset=x \r\nX: "
     "y\r\nCONTENT-DISPOSITION:FORM-DATA;\r\n"
     "\tNAME=a\r\n\r\n1" END,
     "[a|-|text/plain; charset=x]1;=0"},
    /* Boundaries. */
    {"Multipart/Form-Data;charset=utf-8 ; Boundary=\"two words\"",
     "--two words\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--two words--",
     "[a|-|-]1;=0"},
    {"multipart/form-data; boundary=\"fence7", FIELD("a") "1" END, "=400"},
    {"multipart/form-data; boundary=", FIELD("a") "1" END, "=400"},
    {"multipart/form-data", FIELD("a") "1" END, "=400"},
    {"multipart/form-data; "
     "boundary=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     "", "=400"},
    {"multipart/form-data; boundary=-",
     "---\r\nContent-Disposition: form-data; name=a\r\n\r\n-\r\n-\r\n-----", "[a|-|-]-\r\n-;=0"},
};

static const char *status_in(const char *outcome)
{
    return strrchr(outcome, '=');
}

static bool is_as_expected(size_t i, size_t cut, bool each)
{
    struct buf out = {0};
    outcome_of(forms[i].type, forms[i].body, strlen(forms[i].body), cut, each, &out);
    outcome_add(&out, "", 1);
    const char *wanted = forms[i].outcome;
    bool same = wanted[0] == '=' && strcmp(wanted, "=0") != 0
                    ? strcmp(status_in(out.data), wanted) == 0
                    : strcmp(out.data, wanted) == 0;
    if (!same)
        fprintf(stderr, "multipart-test.c: form %zu, cut at %zu: %s, wanted %s\n", i, cut, out.data,
                wanted);
    buf_free(&out);
    return same;
}

static void count(bool good)
{
    passed += good;
    failed += !good;
}

/* Seconds of CPU for a form with LEN bytes that begin like delimiters all the time. */
static double seconds_for(size_t len)
{
    struct buf body = {0};
    struct buf out = {0};
    outcome_add(&body, FIELD("a"), strlen(FIELD("a")));
    while (body.len < len)
        outcome_add(&body, "\r\n--fence", 9);
    outcome_add(&body, END, strlen(END));
    clock_t before = clock();
    outcome_of(FORM, body.data, body.len, body.len / 2, false, &out);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    count(memcmp(out.data + out.len - 3, ";=0", 3) == 0);
    buf_free(&body);
    buf_free(&out);
    return seconds;
}

static void test_limits(void)
{
    struct buf body = {0};
    struct buf out = {0};
    for (int i = 0; i <= LIMIT_PARTS; i++)
        outcome_add(&body, FIELD("a") "\r\n", strlen(FIELD("a") "\r\n"));
    outcome_of(FORM, body.data, body.len, 0, false, &out);
    count(memcmp(out.data + out.len - 4, "=413", 4) == 0);
    body.len = out.len = 0;
    outcome_add(&body, "--fence7\r\nX: ", 13);
    while (body.len <= LIMIT_PART_HEAD_BYTES + 13)
        outcome_add(&body, "x", 1);
    outcome_of(FORM, body.data, body.len, 0, true, &out);
    count(strncmp(out.data, "=413", 4) == 0);
    buf_free(&body);
    buf_free(&out);
}

int main(void)
{
    size_t before = buf_live_bytes();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        count(is_as_expected(i, 0, true));
        for (size_t cut = 0; cut <= strlen(forms[i].body); cut++)
            count(is_as_expected(i, cut, false));
    }
    test_limits();
    /* A second per megabyte would be quadratic; linear is a hundredth of that. */
    count(seconds_for(8 << 20) < 2);
    count(buf_live_bytes() == before);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}

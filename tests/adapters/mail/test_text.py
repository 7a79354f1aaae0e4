"""Bytes as text, and HTML as the text a reader sees."""

from __future__ import annotations

import quopri
from base64 import b64encode
from html import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.adapters.mail.html import text_of
from detent.adapters.mail.text import cleaned, cut, decode, from_base64, unflowed, untransferred
from tests.examples import examples, one_in

POLISH = "Zażółć gęślą jaźń, świeża ŁÓDŹ"


def shown(source: str) -> str:
    return text_of(source)[0]


class TestCharsets:
    @pytest.mark.parametrize(
        "charset", ["utf-8", "iso-8859-2", "windows-1250", "WIN-1250", '"utf-8"', "utf-16"]
    )
    def test_the_declared_charset_is_used(self, charset):
        assert decode(POLISH.encode(charset.strip('"').replace("WIN-", "cp")), charset) == (POLISH, False)

    @pytest.mark.parametrize("charset", ["utf-8", "windows-1250", "iso-8859-2"])
    @pytest.mark.parametrize(
        "declared", [None, "us-ascii", "x-unknown", "utf-32", "rot13", "zlib", "punycode", "\0"]
    )
    def test_without_a_true_one_the_usual_ones_are_tried_and_the_guess_is_said(self, charset, declared):
        assert decode(POLISH.encode(charset), declared) == (POLISH, True)

    def test_windows_bytes_under_the_name_of_an_iso_charset_are_read_as_meant(self):
        assert decode("świeża".encode("cp1250"), "iso-8859-2") == ("świeża", True)
        assert decode("“quoted”".encode("cp1252"), "iso-8859-1") == ("“quoted”", True)

    def test_plain_ascii_needs_no_guess(self):
        assert decode(b"plain") == ("plain", False)
        assert decode(b"plain", "utf-8") == ("plain", False)

    def test_a_byte_order_mark_is_a_declaration(self):
        assert decode(b"\xef\xbb\xbf" + POLISH.encode(), "iso-8859-1") == (POLISH, False)
        assert decode(b"\xff\xfe" + POLISH.encode("utf-16-le")) == (POLISH, False)

    @given(
        st.binary(),
        st.none() | st.text(max_size=12) | st.sampled_from(["utf-7", "utf-16", "hz", "idna", "big5"]),
    )
    def test_any_bytes_are_text(self, data, declared):
        decode(data, declared).text.encode()


class TestTransferEncodings:
    @given(st.binary())
    def test_base64_with_rubbish_in_it_is_read(self, data):
        encoded = b64encode(data)
        assert from_base64(encoded) == data
        assert from_base64(b"\r\n!".join(encoded[n : n + 7] for n in range(0, len(encoded), 7))) == data
        assert from_base64(encoded.rstrip(b"=")) == data

    def test_pieces_of_base64_one_after_the_other_are_all_read(self):
        assert from_base64(b64encode(b"a") + b64encode(b"bc")) == b"abc"

    @given(st.binary(), st.sampled_from(["base64", "quoted-printable", "8BIT", " 7bit ", ""]))
    def test_any_bytes_can_be_read(self, data, encoding):
        assert untransferred(data, encoding) is not None

    def test_quoted_printable_is_read(self):
        assert untransferred(quopri.encodestring(POLISH.encode()), "Quoted-Printable") == POLISH.encode()

    def test_an_unknown_encoding_is_said(self):
        assert untransferred(b"x", "x-rot13") is None


class TestLines:
    def test_line_ends_are_one_and_unseen_characters_gone(self):
        assert cleaned("a\r\nb\rc\u2028d") == "a\nb\nc\nd"
        assert cleaned("SN\u200b48\u00ad213\u202e\ufeff\x00") == "SN48213"
        assert cleaned("a\xa0b\tc") == "a b\tc"

    def test_flowed_lines_are_joined_within_one_quote_depth(self):
        assert unflowed("one \ntwo\nthree \n> four \n> five\n-- \nMaren") == (
            "one two\nthree \n> four five\n-- \nMaren"
        )
        assert unflowed("one \ntwo", delete_space=True) == "onetwo"
        assert unflowed(" > stuffed\n From") == "> stuffed\nFrom"
        assert unflowed("a\n\nb") == "a\n\nb"

    def test_a_text_is_cut_between_words(self):
        assert cut("SN12345 SN67890", 10) == ("SN12345", True)
        assert cut("SN12345", 7) == ("SN12345", False)
        assert cut("a" * 3000, 2000) == ("a" * 2000, True)


class TestHtml:
    def test_blocks_stand_on_lines_and_paragraphs_apart(self):
        assert shown("<div>a<br>b</div><div>c</div><p>d</p><p>e</p>") == "a\nb\nc\n\nd\n\ne"
        assert shown("<div>a</div><div><br></div><div>b</div>") == "a\n\nb"
        assert shown("one\n two <b>th</b>ree") == "one two three"

    def test_cells_are_joined_and_rows_stand_on_lines(self):
        assert shown("<table><tr><td>SN</td><td>1</td></tr><tr><td>M<td>2</table>") == "SN | 1\nM | 2"

    def test_paragraphs_in_cells_do_not_break_a_row(self):
        row = "<tr><td>\n<p>Serial</p>\n</td>\n<td>\n<div><p>SN1</p></div></td></tr>"
        assert shown(f"<table>{row}{row}</table>") == "Serial | SN1\nSerial | SN1"

    def test_an_empty_cell_leaves_no_trace(self):
        assert shown("<table><tr><td></td><td>a</td><td> </td><td>b</td></tr></table>") == "a | b"

    def test_tables_in_cells_keep_their_rows(self):
        inner = "<table><tr><td>b</td><td>c</td></tr><tr><td>d</td></tr></table>"
        assert (
            shown(f"<table><tr><td>a</td><td>{inner}</td></tr><tr><td>e</td></tr></table>")
            == "a | b | c\nd\ne"
        )

    def test_lists_have_marks(self):
        assert shown("<ul><li>a<li>b</ul><ol start=3><li>c</li><li>d</li></ol>") == "- a\n- b\n\n3. c\n4. d"

    def test_links_are_their_text_and_entities_their_characters(self):
        assert (
            shown('<a href="https://x.example">here</a> &lt;b&gt; &#x17c;&nbsp;&amp;amp;')
            == "here <b> ż &amp;"
        )

    def test_preformatted_text_keeps_its_lines(self):
        assert shown("<pre>a  b\n  c</pre>") == "a  b\n  c"

    @pytest.mark.parametrize(
        "hidden",
        [
            "<script>SN1</script>",
            "<style>SN1</style>",
            "<!-- SN1 -->",
            "<!--[if mso]>SN1<![endif]-->",
            "<head><title>SN1</title></head>",
            "<template>SN1</template>",
            "<p hidden>SN1</p>",
            "<p hidden=''>SN1<p>",
            '<span style="display:none">SN1</span>',
            '<span style="DISPLAY : NONE !important">SN1</span>',
            "<span style='color:red;/* x */display:none;'>SN1</span>",
            "<span style=display:none>SN1</span>",
            '<span style="display&#58;none">SN1</span>',
            '<span style="visibility:hidden">SN1</span>',
            '<span style="font-size:0">SN1</span>',
            '<span style="font-size:0px">SN1</span>',
            '<span style="font-size:1px">SN1</span>',
            '<span style="opacity:0">SN1</span>',
            '<span style="mso-hide:all">SN1</span>',
            '<div style="max-height:0;overflow:hidden">SN1</div>',
            '<div style="width:0px;overflow:hidden">SN1</div>',
            '<div style="position:absolute;left:-9999px">SN1</div>',
            '<div style="text-indent:-9999px">SN1</div>',
            '<span style="color:transparent">SN1</span>',
            '<div style="display:none"><div><p>SN1</div></div>',
            '<div style="display:none"><b></div></b>',
            "<table><tr style='display:none'><td>SN1</td></tr></table>",
            "<table><tr><td style='display:none'>SN1<td></table>",
            "<ul><li hidden>SN1<li></ul>",
            "<p hidden>SN1<div></div>",
            "<span hidden><div></span>SN1</div></span>",
            "<svg><text>SN1</text></svg>",
            '<input value="SN1">',
        ],
    )
    def test_what_cannot_be_seen_is_left_out(self, hidden):
        assert shown(f"<div>before</div>{hidden}<div>after</div>").split() == ["before", "after"]

    @pytest.mark.parametrize(
        "seen",
        [
            '<span aria-hidden="true">SN1</span>',
            '<td style="font-size:0"><span style="font-size:14px">SN1</span></td>',
            '<div style="visibility:hidden"><b style="visibility:visible">SN1</b></div>',
            '<div style="height:0">SN1</div>',
            '<p style="display:block">SN1</p>',
            '<p title="hidden">SN1</p>',
            "<p title=\">\" data-x='display:none'>SN1</p>",
            "<noscript>SN1</noscript>",
            "<div style='display:none'>x</div>SN1",
            "<textarea>SN1</textarea>",
            "<o:p/>SN1",
            "<![if !mso]>SN1<![endif]>",
            "</nonsense>SN1</div></p>",
        ],
    )
    def test_what_can_be_seen_is_not(self, seen):
        assert "SN1" in shown(seen)

    def test_quotes_are_marked(self):
        assert shown("a<blockquote>b<blockquote>c</blockquote></blockquote>d") == "a\n\n> b\n\n> > c\n\nd"

    @pytest.mark.parametrize(
        "quote",
        [
            '<div class="gmail_quote">X wrote:<blockquote class="gmail_quote">old</blockquote></div>',
            '<div class="gmail_quote gmail_quote_container">X wrote:<blockquote>old</blockquote></div>',
            '<div class="moz-cite-prefix">X wrote:</div><blockquote type="cite">old</blockquote>',
            '<div id="yahoo_quoted_123" class="yahoo_quoted"><div>X wrote:</div><div>old</div></div>',
            '<div id="divRplyFwdMsg">X wrote:</div><div>old</div>',
            '<div id="x_x_divRplyFwdMsg">X wrote:</div><div>old</div>',
            '<div class="OutlookMessageHeader">X wrote:</div>old',
            '<p id="reply-intro">X wrote:</p><blockquote>old</blockquote>',
            '<div class="protonmail_quote">X wrote:<br><blockquote>old</blockquote></div>',
        ],
    )
    def test_quotes_of_mail_programs_are_marked_once(self, quote):
        lines = [line for line in shown(f"<div>new</div>{quote}").split("\n") if line]
        assert lines == ["new", "> X wrote:", "> old"]

    def test_an_answer_between_the_lines_of_a_quote_is_not_marked(self):
        text = shown(
            '<div class="gmail_quote">X wrote:<blockquote>one</blockquote><div>answer</div>'
            "<blockquote>two</blockquote></div>"
        )
        assert text.split("\n\n") == ["> X wrote:", "> one", "answer", "> two"]

    def test_a_tag_whose_quotation_mark_is_never_closed_costs_only_itself(self):
        assert shown('a <a title="b>c</a> d <i>e</i>') == "a c d e"

    def test_text_that_looks_like_a_tag_is_text(self):
        assert shown("1 < 2 and 3 <4> 5") == "1 < 2 and 3 <4> 5"

    @pytest.mark.parametrize("unit", one_in(3, ["<div>", "<a", "<a b='", "<!--x", "</x", "<script>", "<p"]))
    def test_five_megabytes_of_unclosed_tags_are_read(self, unit):
        """Each takes hours where time grows with the square; a recursion would end at once."""
        assert text_of(unit * (5_000_000 // len(unit))) == ("", False)

    @pytest.mark.parametrize(
        "unit",
        [
            *(
                "<td>",
                "<p>",
                "<a b='>",
                '<a x=">',
                "<!",
                "<![",
                "</",
                "<b></p>",
                "<div>x</b>",
                "<span hidden>",
            ),
            *("&", "&#", "<table><tr><td>x", "<li>x", "x ", "<blockquote>", "<pre>\n", "<", ">", "<pre>a\n"),
            *('<a style="/*">', "<div class=gmail_quote><blockquote>", "<blockquote></div>", "</p>"),
        ],
    )
    def test_a_large_mail_of_anything_is_read(self, unit):
        """Minutes each where time grows with the square."""
        text, _ = text_of(unit * (250_000 // len(unit)))
        assert len(text) <= 250_000

    def test_a_document_beyond_the_limit_is_cut(self):
        assert text_of("<p>word word</p>" * 100, limit=300)[1] is True
        assert text_of("<p>word word</p>", limit=300)[1] is False

    @given(st.text(alphabet="<>/!-=\"' abdivptr&;#x0\n", max_size=80))
    @settings(max_examples=examples(500))
    def test_any_source_is_read(self, source):
        text_of(source)

    @given(st.lists(st.text(alphabet="abcż&<>\"'", min_size=1, max_size=8), min_size=1, max_size=6))
    def test_text_that_was_escaped_comes_back(self, words):
        assert shown("<p>" + " <b>".join(map(escape, words)) + "</p>").split() == " ".join(words).split()
